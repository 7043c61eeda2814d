/* last_words.c - of stderr the end counts, of stdout the beginning: there the result was due. */
#include "worker/last_words.h"

#include "runtime/base.h"
#include "runtime/json.h"
#include "worker/host.h"
#include "worker/plain.h"
#include "worker/text.h"

constexpr size_t OUTPUT_LEN_SHOWN = 200;

static void add_output(struct plain *plain, struct buf *text)
{
	struct slice output = json_trim(plain_output(plain));
	if (output.len == 0)
		return;
	buf_add_text(text, ". Its stdout began: \"");
	text_clean(output, OUTPUT_LEN_SHOWN, text);
	buf_add_byte(text, '"');
}

void last_words_add(struct host *host, struct buf *text)
{
	int status;
	struct plain *plain = host_exited(host, &status) ? host_plain(host) : nullptr;
	if (plain)
		add_output(plain, text);
	hf_cleanup(buf) struct buf log = {};
	host_log(host, &log);
	/* Said, lest it be looked for: an author may have it on stdout. */
	if (log.len == 0 && plain)
		buf_add_text(text, ". Its stderr is empty");
	if (log.len == 0)
		return;
	size_t from = log.len > TEXT_REASON_LEN_MAX ? log.len - TEXT_REASON_LEN_MAX : 0;
	while (from < log.len && ((unsigned char)log.data[from] & 0xc0) == 0x80)
		from++;
	buf_add_format(text, ". Its last output: %s%s", from ? "…" : "", log.data + from);
}
