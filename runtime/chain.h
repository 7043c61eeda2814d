/* chain.h - doubly linked chains through the members' own `next` and `previous`; `first` is the
 * head's place, nullptr when nobody stands there. Macros, since each chain has its own type. Each
 * names its arguments more than once: give them no side effects. */
#pragma once

#define chain_add(first, member)                             \
	do {                                                 \
		(member)->previous = nullptr;                \
		(member)->next = (first);                    \
		if ((member)->next)                          \
			(member)->next->previous = (member); \
		(first) = (member);                          \
	} while (0)

/* `member` stands in it; what its own two links say afterwards is nobody's business. */
#define chain_drop(first, member)                                                              \
	do {                                                                                   \
		*((member)->previous ? &(member)->previous->next : &(first)) = (member)->next; \
		if ((member)->next)                                                            \
			(member)->next->previous = (member)->previous;                         \
	} while (0)
