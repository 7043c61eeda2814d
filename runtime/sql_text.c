/* sql_text.c - a lexer of Postgres's SQL, as far as finding words and semicolons needs it: strings,
 * quoted identifiers, dollar quotes, nested comments, and BEGIN ATOMIC bodies. Called by tool_new
 * for sql phases and schema.sql. Expects standard_conforming_strings = on. */
#include "runtime/sql_text.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "runtime/base.h"

enum token_type {
	TOKEN_END,
	TOKEN_WORD,   /* a keyword or an identifier, quoted ones without their quotes */
	TOKEN_STRING, /* any literal */
	TOKEN_SEMICOLON,
	TOKEN_OTHER,
	TOKEN_OPEN, /* a string, quote or comment that does not end */
};

struct token {
	enum token_type type;
	struct slice text;
	bool quoted;
	int line;
};

struct lexer {
	struct slice sql;
	size_t at;
	int line;
};

static unsigned char peek(const struct lexer *lexer, size_t ahead)
{
	size_t at = lexer->at + ahead;
	return at < lexer->sql.len ? (unsigned char)lexer->sql.data[at] : '\0';
}

static void skip(struct lexer *lexer, size_t count)
{
	for (; count && lexer->at < lexer->sql.len; count--)
		lexer->line += lexer->sql.data[lexer->at++] == '\n';
}

static bool starts_word(unsigned char byte)
{
	return isalpha(byte) || byte == '_' || byte >= 0x80;
}

static bool goes_on_word(unsigned char byte)
{
	return starts_word(byte) || isdigit(byte) || byte == '$';
}

/* At the opening quote. False: it does not end. */
static bool skip_quoted(struct lexer *lexer, unsigned char quote, bool backslashes)
{
	skip(lexer, 1);
	while (lexer->at < lexer->sql.len) {
		unsigned char byte = peek(lexer, 0);
		if (byte == quote && peek(lexer, 1) != quote) {
			skip(lexer, 1);
			return true;
		}
		skip(lexer, byte == quote || (backslashes && byte == '\\') ? 2 : 1);
	}
	return false;
}

/* At the opening of a comment of that kind; comments nest. */
static bool skip_comment(struct lexer *lexer)
{
	int depth = 0;
	while (lexer->at < lexer->sql.len) {
		bool opens = peek(lexer, 0) == '/' && peek(lexer, 1) == '*';
		bool closes = peek(lexer, 0) == '*' && peek(lexer, 1) == '/';
		skip(lexer, opens || closes ? 2 : 1);
		depth += opens ? 1 : closes ? -1 : 0;
		if (depth == 0)
			return true;
	}
	return false;
}

static bool skip_blanks(struct lexer *lexer)
{
	while (lexer->at < lexer->sql.len) {
		if (isspace(peek(lexer, 0))) {
			skip(lexer, 1);
		} else if (peek(lexer, 0) == '-' && peek(lexer, 1) == '-') {
			while (lexer->at < lexer->sql.len && peek(lexer, 0) != '\n')
				skip(lexer, 1);
		} else if (peek(lexer, 0) == '/' && peek(lexer, 1) == '*') {
			if (!skip_comment(lexer))
				return false;
		} else {
			break;
		}
	}
	return true;
}

/* At a '$'. The length of "$tag$", or 0 where this is none. */
static size_t dollar_tag_len(const struct lexer *lexer)
{
	size_t len = 1;
	if (starts_word(peek(lexer, len)))
		while (peek(lexer, len) != '$' && goes_on_word(peek(lexer, len)))
			len++;
	return peek(lexer, len) == '$' ? len + 1 : 0;
}

static bool skip_dollar_quoted(struct lexer *lexer, size_t tag_len)
{
	const char *tag = lexer->sql.data + lexer->at;
	skip(lexer, tag_len);
	size_t left = lexer->sql.len - lexer->at;
	const char *end = memmem(lexer->sql.data + lexer->at, left, tag, tag_len);
	if (!end)
		return false;
	skip(lexer, (size_t)(end - (lexer->sql.data + lexer->at)) + tag_len);
	return true;
}

static void lex_word(struct lexer *lexer, struct token *token)
{
	size_t from = lexer->at;
	while (lexer->at < lexer->sql.len && goes_on_word(peek(lexer, 0)))
		skip(lexer, 1);
	token->type = TOKEN_WORD;
	token->text = (struct slice){ lexer->sql.data + from, lexer->at - from };
	if (token->text.len == 1 && peek(lexer, 0) == '\'' &&
	    strchr("eEbBxXnN", token->text.data[0])) {
		bool backslashes = token->text.data[0] == 'e' || token->text.data[0] == 'E';
		bool ends = skip_quoted(lexer, '\'', backslashes);
		token->type = ends ? TOKEN_STRING : TOKEN_OPEN;
	}
}

static void lex_quote(struct lexer *lexer, struct token *token)
{
	unsigned char quote = peek(lexer, 0);
	size_t from = lexer->at + 1;
	if (!skip_quoted(lexer, quote, false)) {
		token->type = TOKEN_OPEN;
		return;
	}
	token->type = quote == '"' ? TOKEN_WORD : TOKEN_STRING;
	token->quoted = true;
	token->text = (struct slice){ lexer->sql.data + from, lexer->at - from - 1 };
}

static struct token next_token(struct lexer *lexer)
{
	int line = lexer->line;
	bool closed = skip_blanks(lexer);
	struct token token = { .type = TOKEN_OTHER, .line = closed ? lexer->line : line };
	token.text = (struct slice){ lexer->sql.data + lexer->at, 1 };
	if (!closed) {
		token.type = TOKEN_OPEN;
		return token;
	}
	if (lexer->at == lexer->sql.len) {
		token.type = TOKEN_END;
		token.text.len = 0;
		return token;
	}
	unsigned char byte = peek(lexer, 0);
	size_t tag_len = byte == '$' ? dollar_tag_len(lexer) : 0;
	if (tag_len) {
		token.type = skip_dollar_quoted(lexer, tag_len) ? TOKEN_STRING : TOKEN_OPEN;
	} else if (starts_word(byte)) {
		lex_word(lexer, &token);
	} else if (byte == '\'' || byte == '"') {
		lex_quote(lexer, &token);
	} else {
		token.type = byte == ';' ? TOKEN_SEMICOLON : TOKEN_OTHER;
		skip(lexer, 1);
	}
	return token;
}

static bool word_is(const struct token *token, const char *word)
{
	return token->type == TOKEN_WORD && token->text.len == strlen(word) &&
	       strncasecmp(token->text.data, word, token->text.len) == 0;
}

static bool word_among(const struct token *token, const char *const *words)
{
	for (; *words; words++)
		if (!token->quoted && word_is(token, *words))
			return true;
	return false;
}

static enum hf_code bad_start(const struct token *token, const char *const *allowed,
			      struct hf_err *err)
{
	hf_assert(allowed[0]);
	char list[160] = "";
	for (size_t i = 0; allowed[i]; i++) {
		size_t len = strlen(list);
		if (len + strlen(allowed[i]) + 3 > sizeof list)
			break;
		if (len)
			strcat(list, ", ");
		strcat(list, allowed[i]);
	}
	int len = token->text.len < 40 ? (int)token->text.len : 40;
	return hf_fail(err, HF_INVALID, "line %d: a statement may not begin with %.*s, but with %s",
		       token->line, len, token->text.data, list);
}

/* Semicolons inside CREATE FUNCTION … BEGIN ATOMIC … END do not end the statement. */
struct body {
	bool creates; /* the statement begins with CREATE */
	bool begin;   /* the last word was BEGIN */
	int depth;    /* of ATOMIC and CASE not yet ended */
};

static void body_follow(struct body *body, const struct token *token)
{
	bool word = token->type == TOKEN_WORD && !token->quoted;
	if (body->creates && word) {
		if (body->begin && word_is(token, "atomic"))
			body->depth++;
		else if (body->depth && word_is(token, "case"))
			body->depth++;
		else if (body->depth && word_is(token, "end"))
			body->depth--;
	}
	body->begin = word && word_is(token, "begin");
}

static enum hf_code token_check(const struct token *token, struct hf_err *err)
{
	if (token->type == TOKEN_OPEN)
		return hf_fail(err, HF_INVALID,
			       "line %d: a string, quoted name or comment does not end",
			       token->line);
	/* The one function that changes the role or a setting from inside an expression. */
	if (word_is(token, "set_config"))
		return hf_fail(err, HF_INVALID, "line %d: set_config is not allowed", token->line);
	return HF_OK;
}

/* Counts the statements; empty ones are none. */
static enum hf_code statements_check(struct slice sql, const char *const *allowed, int max,
				     struct hf_err *err)
{
	if (sql.len && memchr(sql.data, '\0', sql.len))
		return hf_fail(err, HF_INVALID, "line 1: holds a NUL byte");
	struct lexer lexer = { .sql = sql, .line = 1 };
	struct body body = {};
	bool inside = false;
	int count = 0;
	while (true) {
		struct token token = next_token(&lexer);
		hf_try(token_check(&token, err));
		if (token.type == TOKEN_END)
			break;
		if (token.type == TOKEN_SEMICOLON && body.depth == 0) {
			inside = false;
			continue;
		}
		bool bracket = token.type == TOKEN_OTHER && token.text.data[0] == '(';
		if (!inside && bracket)
			continue; /* ((SELECT …)): the word behind decides */
		if (!inside) {
			if (++count > max)
				return hf_fail(err, HF_INVALID,
					       "line %d: a second statement; more than one "
					       "belong in a function of schema.sql",
					       token.line);
			if (!word_among(&token, allowed))
				return bad_start(&token, allowed, err);
			inside = true;
			body = (struct body){ .creates = word_is(&token, "create") };
		}
		body_follow(&body, &token);
	}
	if (count == 0)
		return hf_fail(err, HF_INVALID, "line 1: holds no statement");
	return HF_OK;
}

enum hf_code sql_check_statement(struct slice sql, struct hf_err *err)
{
	static const char *const allowed[] = { "SELECT", "WITH",  "INSERT", "UPDATE",
					       "DELETE", "MERGE", "VALUES", nullptr };
	return statements_check(sql, allowed, 1, err);
}

enum hf_code sql_check_script(struct slice sql, struct hf_err *err)
{
	static const char *const allowed[] = {
		"CREATE", "ALTER",  "DROP",   "COMMENT", "GRANT",    "REVOKE",  "DO",    "SELECT",
		"WITH",   "INSERT", "UPDATE", "DELETE",  "TRUNCATE", "REFRESH", nullptr,
	};
	return statements_check(sql, allowed, 10'000, err);
}
