/* help.c - what `holdfast help` prints: pages of commands, tables of settings, metrics and codes,
 * and all of them as a man page. Each is made of the .def that the program itself is made of, and
 * of four shapes (heading, paragraph, item, example), which know the terminal and roff. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base.h"
#include "runtime/buf.h"
#include "runtime/command.h"
#include "runtime/config.h"
#include "runtime/utf8.h"

constexpr int INDENT = 10;
constexpr int COLUMNS = 80;

/* --- the shapes ------------------------------------------------------------------------------- */

static FILE *out;
static bool roff;

/* As it stands: roff would read a dot or an apostrophe that begins a line, and make typographer's
 * signs of what is to be typed. */
static void put(const char *text, size_t len)
{
	static const char *const escapes[] = { "\\\\e",  "-\\-",   "'\\(aq",
					       "`\\(ga", "^\\(ha", "~\\(ti" };
	if (!roff) {
		fwrite(text, 1, len, out);
		return;
	}
	if (len > 0 && text[0] == '.')
		fputs("\\&", out);
	for (size_t i = 0; i < len; i++) {
		const char *escape = nullptr;
		for (size_t k = 0; k < countof(escapes); k++)
			if (escapes[k][0] == text[i])
				escape = escapes[k] + 1;
		if (escape)
			fputs(escape, out);
		else
			putc(text[i], out);
	}
}

static void flow(const char *text)
{
	if (roff) {
		put(text, strlen(text));
		putc('\n', out);
		return;
	}
	int column = 0;
	for (size_t len; *text; text += len + strspn(text + len, " ")) {
		len = strcspn(text, " ");
		int columns = (int)utf8_count((struct slice){ text, len });
		if (column > 0 && column + 1 + columns > COLUMNS) {
			putc('\n', out);
			column = 0;
		}
		if (column == 0)
			column = fprintf(out, "%*s", INDENT, "");
		else
			column += fprintf(out, " ");
		fwrite(text, 1, len, out);
		column += columns;
	}
	putc('\n', out);
}

static void heading(const char *text)
{
	fprintf(out, roff ? ".SH " : "\n");
	for (; *text; text++)
		putc(roff && *text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text, out);
	putc('\n', out);
}

/* `facts` is a line of its own below the text; may be empty. */
static void item(const char *term, const char *text, const char *facts)
{
	if (roff)
		fputs(".TP\n\\fB", out);
	else
		fputs("  ", out);
	put(term, strlen(term));
	fputs(roff ? "\\fR\n" : "\n", out);
	flow(text);
	if (!*facts)
		return;
	if (roff)
		fputs(".br\n", out);
	flow(facts);
}

/* Text as commands.def has it: lines that begin with a space stay as they are, others flow. */
static void page_text(const char *text)
{
	bool verbatim = false;
	for (size_t len; *text; text += len + (text[len] == '\n')) {
		len = strcspn(text, "\n");
		bool indented = *text == ' ';
		if (!roff) {
			fprintf(out, "%.*s\n", (int)len, text);
			continue;
		}
		if (len > 0 && indented != verbatim) {
			fputs(indented ? ".PP\n.nf\n" : ".fi\n", out);
			verbatim = indented;
		}
		if (len == 0) {
			const char *next = text + 1;
			if (!(verbatim && *next == ' '))
				fputs(verbatim ? ".fi\n.PP\n" : ".PP\n", out);
			else
				putc('\n', out);
			verbatim = verbatim && *next == ' ';
			continue;
		}
		put(text, len);
		putc('\n', out);
	}
	if (verbatim)
		fputs(".fi\n", out);
}

/* --- settings --------------------------------------------------------------------------------- */

/* The unit is in the name, as in every name of ours. */
static const char *unit_of(const struct setting *setting)
{
	size_t len = strlen(setting->name);
	if (setting->type == SETTING_FLAG)
		return "";
	if (setting->type == SETTING_TEXT)
		return " TEXT";
	if (len > 3 && strcmp(setting->name + len - 3, "_ms") == 0)
		return " MS";
	return strstr(setting->name, "_bytes_") ? " BYTES" : " NUMBER";
}

static void add_takers(struct buf *facts, const char *roles)
{
	const char *between = "; of ";
	for (size_t i = 0; i < commands_count; i++) {
		if (commands[i].role == ' ' || !strchr(roles, commands[i].role))
			continue;
		buf_add_format(facts, "%s%s", between, commands[i].name);
		between = ", ";
	}
	if (strchr(roles, 'u'))
		buf_add_format(facts, "%sdeploy/up (the variable alone)", between);
}

static void print_setting(const struct setting *setting, bool takers)
{
	char name[SETTING_NAME_LEN_MAX];
	hf_cleanup(buf) struct buf term = {}, facts = {};
	buf_add_format(&facts, "HOLDFAST_%s", setting_variable(setting, name));
	if (setting->type == SETTING_INT)
		buf_add_format(&facts, "; default %" PRId64 ", from %" PRId64 " to %" PRId64,
			       setting->number, setting->min, setting->max);
	else if (setting->type == SETTING_FLAG)
		buf_add_format(&facts, "; default %s", setting->number ? "true" : "false");
	else if (setting->text && *setting->text)
		buf_add_format(&facts, "; default %s", setting->text);
	if (takers)
		add_takers(&facts, setting->roles);
	buf_add_format(&term, "--%s%s", setting_flag(setting, name), unit_of(setting));
	item(term.data, setting->help, facts.data);
}

static void print_settings(void)
{
	for (size_t i = 0; i < config_settings_count; i++)
		print_setting(&config_settings[i], true);
}

/* --- metrics ---------------------------------------------------------------------------------- */

static const struct {
	const char *name, *kind, *roles, *label, *values, *help;
} metrics[] = {
#define METRIC(name, kind, unit, roles, label, values, help) \
	{ "holdfast_" #name, #kind, roles, label, values, help },
#include "runtime/metrics.def"
#undef METRIC
};

static void print_metrics(void)
{
	for (size_t i = 0; i < countof(metrics); i++) {
		hf_cleanup(buf) struct buf term = {}, facts = {};
		buf_add_text(&term, metrics[i].name);
		if (*metrics[i].label)
			buf_add_format(&term, "{%s}", metrics[i].label);
		buf_add_text(&facts, metrics[i].kind[0] == 'C' ? "counter" : "gauge");
		add_takers(&facts, metrics[i].roles);
		if (*metrics[i].values)
			buf_add_format(&facts, "; %s: %s", metrics[i].label, metrics[i].values);
		item(term.data, metrics[i].help, facts.data);
	}
}

/* --- codes ------------------------------------------------------------------------------------ */

static const struct {
	int code; /* 0: a row is of a type */
	const char *type, *place, *executed, *help;
} codes[] = {
#define RPC(name, code, status, executed, help) { code, "", status, executed, help },
#define TYPE(type, place, executed, help)       { 0, #type, place, executed, help },
#include "runtime/codes.def"
#undef TYPE
#undef RPC
};

static void print_codes(void)
{
	page_text("Every error says in `executed` whether the work was done: no (nothing happened, "
		  "the\nsame effect ID may be sent again), maybe, or yes. It stands in `data` of a "
		  "JSON-RPC\nerror, or in `structuredContent` of a tool result with isError; `any` "
		  "below: one of the\nthree. Where an effect ID came as an argument the model gets "
		  "the result, else the client\nthe error.\n\n");
	for (size_t i = 0; i < countof(codes); i++) {
		hf_cleanup(buf) struct buf term = {}, facts = {};
		if (codes[i].code)
			buf_add_format(&term, "%d", codes[i].code);
		else
			buf_add_text(&term, codes[i].type);
		buf_add_format(&facts, "executed: %s; %s%s", codes[i].executed,
			       codes[i].code ? "HTTP " : "in ", codes[i].place);
		item(term.data, codes[i].help, facts.data);
	}
}

/* --- exit codes and files --------------------------------------------------------------------- */

static const struct {
	int code;
	const char *help;
} exits[] = {
#define EXIT(name, code, help) { code, help },
#include "runtime/exits.def"
#undef EXIT
};

static void print_exits(void)
{
	for (size_t i = 0; i < countof(exits); i++) {
		char code[12];
		snprintf(code, sizeof code, "%d", exits[i].code);
		item(code, exits[i].help, "");
	}
}

static void print_files(void)
{
	static const struct {
		const char *path, *help;
	} files[] = {
		{ "DIR/tool.json, DIR/pack.json", "a tool, or prompts and resources alone, as "
						  "`holdfast tools` takes it" },
		{ "tokens file", "lines `SHA256-HEX SUBJECT TENANT`: who may call, see "
				 "--tokens-file" },
		{ "keys file", "lines `VERSION HEX`: the secrets of the keys that downstream "
			       "systems get; the same for every API and worker, see --keys-file" },
		{ ".holdfast/env", "the settings of the stack that deploy/up started, for a "
				   "shell's `.`" },
	};
	for (size_t i = 0; i < countof(files); i++)
		item(files[i].path, files[i].help, "");
}

/* --- pages ------------------------------------------------------------------------------------ */

static const struct table {
	const char *name, *summary;
	void (*print)(void);
} tables[] = {
	{ "settings", "every setting: flag, variable, default, bounds", print_settings },
	{ "metrics", "every metric of --metrics-listen", print_metrics },
	{ "codes", "every error that an MCP client can get, and `executed`", print_codes },
};

static const char about[] =
    "A call of a slow MCP tool carries an effect ID, a name that its caller makes up for one\n"
    "piece of work. The answer is a task handle, stored in Postgres before it is given. Workers\n"
    "run the tool phase by phase and commit a recovery point after each. Whatever dies meanwhile,\n"
    "work goes on there; the same effect ID again is the same task and the same result.\n";

static void print_synopsis(const struct command *command)
{
	const char *gap = *command->synopsis ? " " : "";
	if (!roff) {
		fprintf(out, "holdfast %s%s%s\n", command->name, gap, command->synopsis);
		return;
	}
	fprintf(out, "\\fBholdfast %s\\fR%s", command->name, gap);
	put(command->synopsis, strlen(command->synopsis));
	putc('\n', out);
}

void help_page(const struct command *command)
{
	out = stdout;
	fprintf(out, "holdfast %s - %s\n\nusage: ", command->name, command->summary);
	print_synopsis(command);
	putc('\n', out);
	page_text(command->text);
	if (command->role == ' ')
		return;
	heading("settings");
	for (size_t i = 0; i < config_settings_count; i++)
		if (strchr(config_settings[i].roles, command->role))
			print_setting(&config_settings[i], false);
}

void help_overview(bool usage)
{
	out = usage ? stderr : stdout;
	fputs("holdfast - durable task handles for slow MCP tools: called twice, done once\n\n"
	      "usage: holdfast COMMAND [ARGUMENTS]\n"
	      "       holdfast help [COMMAND | settings | metrics | codes | --man]\n\n",
	      out);
	fputs(about, out);
	heading("commands");
	for (size_t i = 0; i < commands_count; i++)
		fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "  %-9s %s\n", "help", "print this page, or that of a command; or a table:");
	for (size_t i = 0; i < countof(tables); i++)
		fprintf(out, "    %-9s %s\n", tables[i].name, tables[i].summary);
	fprintf(out, "    %-9s %s\n", "--man",
		"all of it as a man page: holdfast help --man | man -l -");
	heading("settings");
	fputs(
	    "  Each command takes its settings from the environment (HOLDFAST_...) and from "
	    "flags,\n"
	    "  which win; `holdfast COMMAND --help` lists them with their defaults. A setting "
	    "that\n"
	    "  does not exist is an error. `deploy/up` writes the variables of the stack that it\n"
	    "  started to .holdfast/env.\n",
	    out);
	heading("exit status");
	print_exits();
}

bool help_table(const char *name)
{
	out = stdout;
	for (size_t i = 0; i < countof(tables); i++) {
		if (strcmp(tables[i].name, name) != 0)
			continue;
		tables[i].print();
		return true;
	}
	return false;
}

static void man_commands(void)
{
	heading("commands");
	for (size_t i = 0; i < commands_count; i++) {
		fprintf(out, ".SS \"holdfast %s\"\n.nf\n", commands[i].name);
		print_synopsis(&commands[i]);
		fputs(".fi\n.PP\nTo ", out);
		put(commands[i].summary, strlen(commands[i].summary));
		fputs(".\n.PP\n", out);
		page_text(commands[i].text);
	}
}

void help_man(void)
{
	out = stdout;
	roff = true;
	fputs(".TH HOLDFAST 1 \"\" \"holdfast " HF_VERSION "\" \"Holdfast\"\n"
	      ".SH NAME\nholdfast \\- durable task handles for slow MCP tools\n"
	      ".SH SYNOPSIS\n.nf\n\\fBholdfast\\fR COMMAND [ARGUMENTS]\n"
	      "\\fBholdfast help\\fR [COMMAND | settings | metrics | codes | \\-\\-man]\n.fi\n",
	      out);
	heading("description");
	page_text(about);
	man_commands();
	heading("settings");
	flow("Each is a flag and a variable of the environment; the flag wins. One that does not "
	     "exist, or is out of its bounds, is an error.");
	print_settings();
	heading("exit status");
	print_exits();
	heading("errors of mcp clients");
	print_codes();
	heading("metrics");
	flow("What --metrics-listen tells Prometheus at /metrics.");
	print_metrics();
	heading("files");
	print_files();
	heading("examples");
	page_text("  ./deploy/up\n"
		  "  . .holdfast/env\n"
		  "  holdfast call build_report --arg month=2015-09 --effect-id september --wait\n"
		  "  holdfast task show september\n");
	roff = false;
}
