/* http_write.h - answers as HTTP/1.1 bytes. conn.c queues what these append. */
#pragma once

#include "api/call.h"
#include "api/http.h"
#include "runtime/buf.h"

/* Every answer has Content-Length, X-Content-Type-Options and Cache-Control: no-store. `close` adds
 * "Connection: close"; `head` leaves the body out. */
void http_write_reply(struct buf *out, const struct reply *reply, bool close, bool head);
/* The head of a streamed answer; `chunks` says how its body is framed. What is not chunked has to
 * end with the connection. */
void http_write_stream(struct buf *out, const struct stream_head *head, bool close, bool chunks);
/* A piece of its body. An empty one adds nothing: it would end the body. */
void http_write_chunk(struct buf *out, struct slice bytes);
/* The end of a chunked body. */
void http_write_last_chunk(struct buf *out);
/* The answer to a refused request: a small JSON body that says nothing was executed; closes. */
void http_write_refusal(struct buf *out, struct http_refusal refusal);
/* "100 Continue". */
void http_write_continue(struct buf *out);
