/* schema_inner.h - the compiled form of a schema, shared by schema.c that builds it and
 * schema_check.c that runs it. Nodes form a tree; slices point into the schema's own copy. */
#pragma once

#include <stdint.h>

#include "runtime/buf.h"
#include "runtime/json.h"
#include "runtime/schema.h"
#include "runtime/schema_pattern.h"

/* A place in JSON, innermost first; lives on the stack of whoever walks. */
struct schema_path {
	const struct schema_path *up; /* nullptr: the root, whose name does not count */
	struct slice name;            /* raw, with its quotes */
};

/* Fails with "<pointer>: <text>", or the text alone at the root; cut at a character's end. */
enum hf_code schema_fail(struct hf_err *err, enum hf_code code, const struct schema_path *path,
			 const char *format, ...) __attribute__((format(printf, 4, 5)));

enum schema_type {
	SCHEMA_NULL,
	SCHEMA_BOOLEAN,
	SCHEMA_INTEGER,
	SCHEMA_NUMBER,
	SCHEMA_STRING,
	SCHEMA_ARRAY,
	SCHEMA_OBJECT,
	SCHEMA_TYPES,
};

/* The values of enum or const by canonical form, sorted by bytes. */
struct schema_values {
	struct buf *forms; /* nullptr: the keyword is absent */
	size_t count;
	struct slice spelt;
};

enum schema_bound { BOUND_MIN, BOUND_MAX, BOUND_OVER, BOUND_UNDER, SCHEMA_BOUNDS };

struct schema_property {
	char *name;               /* unescaped; JSON names hold no NUL */
	struct slice raw;         /* with its quotes, in the text of the schema */
	struct schema_node *node; /* nullptr: named by `required` alone */
	bool required;
};

/* allOf, anyOf, oneOf, and `not` as a list of one. */
enum schema_list { LIST_ALL, LIST_ANY, LIST_ONE, LIST_NOT, SCHEMA_LISTS };

struct schema_nodes {
	struct schema_node **nodes;
	size_t count;
};

struct schema_node {
	struct slice text;            /* in the text of the schema: by its place it is found */
	struct slice ref, anchor;     /* raw strings; no data: absent */
	struct schema_node *referred; /* where `ref` leads; not owned */
	struct schema_nodes lists[SCHEMA_LISTS], definitions;
	struct schema_node *condition, *then, *otherwise; /* if, then, else; nullable */
	bool refuses;                                     /* the schema `false` */
	unsigned types;                                   /* a bit for each schema_type; 0: any */
	struct schema_values one_of, constant;
	struct slice bounds[SCHEMA_BOUNDS]; /* numbers; no data: absent */
	int64_t length_min, length_max;     /* in code points; -1: absent */
	struct schema_pattern *pattern;
	struct schema_property *properties; /* sorted by name */
	size_t properties_count;
	struct schema_node *additional; /* nullptr: anything */
};

struct schema {
	char *text;
	struct schema_node *root;
};
