/* contents.h - the ways to answer resources/read. */
#pragma once

#include "api/request.h"
#include "runtime/buf.h"
#include "runtime/slice.h"

/* One element of `contents`: the bytes as text where the media type and they allow it. */
void resource_add_contents(struct slice uri, struct slice media_type, struct slice bytes,
			   struct buf *out);

/* Each ends the request. */

/* `contents`: one element, JSON. */
void resource_reply(struct request *request, struct slice contents);
void resource_refuse_unknown(struct request *request, struct slice uri);
