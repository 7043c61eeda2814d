/* sse.h - the stream form of an answer (A11): one JSON-RPC message an event, comments to keep
 * proxies awake. No event has an id: a real client that sees one tries to resume the stream, and
 * there is nothing to resume. Frames only; conn.c does the I/O. */
#pragma once

#include "api/call.h"
#include "runtime/buf.h"
#include "runtime/slice.h"

/* Begins a streamed answer of this form. */
void sse_open(struct call *call);

/* `message`: strict JSON. Line feeds between its tokens become blanks, so that it is one line. */
void sse_event(struct slice message, struct buf *out);
/* A comment, which clients skip. */
void sse_comment(struct buf *out);
