/* curl_loop.h - libcurl's multi interface on libev: curl names the sockets to watch and the time to
 * be called at, libev's watchers feed it. Knows nothing of what is transferred. */
#pragma once

#include <curl/curl.h>

struct curl_loop;
struct ev_loop;

/* `done` is called from the loop for a transfer that has ended, with its CURLOPT_PRIVATE; it is
 * still to be removed then. */
struct curl_loop *curl_loop_open(struct ev_loop *loop, void (*done)(void *owner, CURLcode code));
/* After the last transfer was removed. Returns nullptr. */
struct curl_loop *curl_loop_close(struct curl_loop *curl);

void curl_loop_add(struct curl_loop *curl, CURL *easy);
void curl_loop_remove(struct curl_loop *curl, CURL *easy);

/* Of what curl is told nothing may be left out: a request without its key is another request. */
void curl_must_have(bool had_memory);
