/* headers.h - what the front reads from a request's headers: media types, who it was meant for,
 * and values that a client may have wrapped in base64 (A3–A5, A19). Pure functions. */
#pragma once

#include "api/call.h"
#include "runtime/arena.h"
#include "runtime/slice.h"

/* "application/json", with parameters or without. */
bool header_is_json(struct slice content_type);
/* Whether the Accept lines of the call, taken together, let JSON through; none let all through. */
bool header_accepts_json(const struct call *call);
/* The same of text/event-stream. */
bool header_accepts_events(const struct call *call);

/* `allowed`: comma-separated names without port; "*" for any. */
bool header_host_allowed(struct slice host, const char *allowed);
/* `allowed`: comma-separated origins, or "*". An origin that is the server's own, by a `host` that
 * stands in `allowed_hosts` by name, passes too (a rebound name does not stand there). */
bool header_origin_allowed(struct slice origin, const char *allowed, struct slice host,
			   const char *allowed_hosts);

/* A5: =?base64?…?= is decoded (strictly, canonically), anything else stands for itself. False: a
 * broken sentinel, or bytes that may not stand bare in such a header. */
bool header_decode(struct slice value, struct arena *arena, struct slice *out);
