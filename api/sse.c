/* sse.c - see sse.h. Used by request.c, and by listen.c for what it holds back. */
#include "api/sse.h"

void sse_open(struct call *call)
{
	call_stream(call, &(struct stream_head){
			      .content_type = "text/event-stream",
			      .extra = "Cache-Control: no-cache, no-transform\r\n"
				       "X-Accel-Buffering: no\r\n",
			  });
}

void sse_event(struct slice message, struct buf *out)
{
	buf_add_text(out, "event: message\r\ndata: ");
	size_t from = out->len;
	buf_add_slice(out, message);
	/* In JSON they stand only between tokens. */
	for (size_t i = from; i < out->len; i++)
		if (out->data[i] == '\n' || out->data[i] == '\r')
			out->data[i] = ' ';
	buf_add_text(out, "\r\n\r\n");
}

void sse_comment(struct buf *out)
{
	buf_add_text(out, ": ping\r\n\r\n");
}
