/* read.h - inside of the SDK: msgpack as deep as a frame may be. msgpack-c's own reader stops at 32
 * levels, and a frame may have twice as many. */
#ifndef HOLDFAST_TOOL_READ_H
#define HOLDFAST_TOOL_READ_H

#include <msgpack.h>

/* One value that fills `bytes`; its texts stay there, the rest is in `zone`. False: it is none. */
bool tool_read(const char *bytes, size_t len, msgpack_zone *zone, msgpack_object *value);

[[noreturn]] void tool_out_of_memory(void);

#endif
