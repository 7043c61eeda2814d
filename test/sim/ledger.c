/* ledger.c - the outside world's own book: what took effect, for which phase of which effect ID.
 * The oracle that every promise is held against, at the moment that something happens. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base.h"
#include "test/sim/sim.h"

static struct entry (*book)[PLACES];
static int book_count;

struct entry *ledger(int effect, int place)
{
	hf_assert(place >= 0 && place < PLACES);
	if (effect >= book_count) {
		int room = effect + 1'024;
		book = hf_realloc(book, (size_t)room * sizeof book[0]);
		memset(&book[book_count], 0, (size_t)(room - book_count) * sizeof book[0]);
		book_count = room;
	}
	return &book[effect][place];
}

void ledger_send(int effect, int place, const char *key, enum effect_class class)
{
	struct entry *entry = ledger(effect, place);
	check_start(&effects[effect], place);
	entry->sends++;
	if ((uint64_t)entry->sends > tally->most_sends)
		tally->most_sends = (uint64_t)entry->sends;
	happened("sent", effect, place, entry->sends);
	if (class != EFFECT_KEYED)
		return;
	/* V5: the key is made of identity and place. */
	if (entry->sent_key && strcmp(entry->key, key) != 0)
		broken(effect, "phase %d was sent under two keys, %s and %s", place, entry->key,
		       key);
	entry->sent_key = true;
	snprintf(entry->key, sizeof entry->key, "%s", key);
}

void ledger_effect(int effect, int place)
{
	struct entry *entry = ledger(effect, place);
	entry->effects++;
	happened("took effect", effect, place, entry->effects);
	if (entry->effects > 1)
		broken(effect, "phase %d took effect twice", place);
}
