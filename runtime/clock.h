/* clock.h - local waits. Time that is stored or compared with stored time is the database's;
 * this one only measures how long this process waited. */
#pragma once

#include <stdint.h>

/* CLOCK_BOOTTIME in ms: goes on while the machine sleeps, so a local lease does too. */
int64_t clock_boot_ms(void);
/* Wall time in ms since 1970, for log lines and for what a client carries between two of its
 * requests; never for what is stored. */
int64_t clock_wall_ms(void);
/* Blocks for so long, whatever signals come. */
void clock_rest_ms(int64_t ms);
