/* seen.h - the moves of runs, for who hears of them; see seen.c. */
#pragma once

struct run;

/* It sends a write. */
void seen_write(const struct run *run);
