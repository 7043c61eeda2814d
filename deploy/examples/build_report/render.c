/* render.c - phase `render` of build_report: draws the month that `collect` found as a PDF and
 * stores it as an artifact. Pure: the same data gives the same bytes, on every attempt.
 *
 * A checkpoint for each chart: an attempt that follows a crash draws those that had been reached
 * again at once and only rests (`pace_ms`) at the others. The rest stands for work that takes long;
 * it is what makes a demonstration slow enough to be watched, or killed. */
#include <cairo-pdf.h>
#include <cairo.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if __has_include(<holdfast/tool.h>)
#include <holdfast/tool.h>
#else
#include "worker/sdk/c/tool.h"
#endif

constexpr double PAGE_WIDTH = 595, PAGE_HEIGHT = 842; /* A4 in points */
constexpr double MARGIN = 54;
constexpr double INNER_WIDTH = PAGE_WIDTH - 2 * MARGIN;
constexpr int DAYS_MAX = 31;
constexpr int PLACES_MAX = 3;    /* more would not fit beside each other */
constexpr int SHARED_CHARTS = 4; /* besides one for each place */
constexpr int64_t PACE_MS = 1'500;
constexpr int64_t REST_SLICE_MS = 20; /* between two looks whether it was cancelled */
constexpr char FONT[] = "DejaVu Sans";

struct colour {
	double red, green, blue;
};

struct day {
	int number; /* of the month */
	double temp_max, temp_min, precipitation, wind;
	const char *weather;
};

struct place {
	const char *name;
	struct day days[DAYS_MAX];
	int count;
	struct colour colour;
};

struct report {
	struct tool_run *run;
	const char *month; /* 2015-09 */
	char title[32];    /* September 2015 */
	int year, month_number, days;
	struct place places[PLACES_MAX];
	int places_count;
	int page, pages, charts;
	cairo_t *cr;
	msgpack_sbuffer pdf;
};

struct box {
	double x, y, width, height;
};

static const struct colour ink = { 0.13, 0.17, 0.22 }, grey = { 0.45, 0.49, 0.54 },
			   line_grey = { 0.86, 0.88, 0.90 }, pale = { 0.955, 0.965, 0.975 },
			   navy = { 0.09, 0.20, 0.33 }, white = { 1, 1, 1 };
static const struct colour place_colours[PLACES_MAX] = { { 0.80, 0.33, 0.22 },
							 { 0.10, 0.49, 0.60 },
							 { 0.47, 0.36, 0.62 } };

static const struct kind {
	const char *name;
	struct colour colour;
} kinds[] = {
	{ "sun", { 0.95, 0.71, 0.22 } },  { "drizzle", { 0.56, 0.73, 0.85 } },
	{ "rain", { 0.20, 0.44, 0.74 } }, { "fog", { 0.68, 0.71, 0.74 } },
	{ "snow", { 0.62, 0.87, 0.93 } },
};
constexpr int KINDS = sizeof kinds / sizeof kinds[0];

/* --- reading what collect found --------------------------------------------------------------- */

static int day_of(const char *date)
{
	return strlen(date) == 10 ? atoi(date + 8) : 0;
}

static void read_place(struct report *report, const msgpack_object *map)
{
	struct place *place = &report->places[report->places_count];
	const msgpack_object *days = tool_find(map, "days");
	place->name = tool_text(report->run, map, "name", "?");
	place->colour = place_colours[report->places_count];
	if (!days || days->type != MSGPACK_OBJECT_ARRAY)
		return;
	for (uint32_t i = 0; i < days->via.array.size && place->count < DAYS_MAX; i++) {
		const msgpack_object *from = &days->via.array.ptr[i];
		struct day *day = &place->days[place->count];
		*day = (struct day){
			.number = day_of(tool_text(report->run, from, "date", "")),
			.temp_max = tool_number(from, "temp_max", 0),
			.temp_min = tool_number(from, "temp_min", 0),
			.precipitation = tool_number(from, "precipitation", 0),
			.wind = tool_number(from, "wind", 0),
			.weather = tool_text(report->run, from, "weather", ""),
		};
		place->count += day->number >= 1 && day->number <= DAYS_MAX;
	}
	report->places_count += place->count > 0;
}

static int days_in_month(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return month == 2 && leap ? 29 : days[month - 1];
}

/* False: there is nothing to draw. */
static bool read_report(struct report *report)
{
	static const char *const names[] = { "January",   "February", "March",    "April",
					     "May",       "June",     "July",     "August",
					     "September", "October",  "November", "December" };
	const msgpack_object *state = tool_state(report->run, "collect");
	report->month = tool_text(report->run, state, "month", "");
	if (sscanf(report->month, "%4d-%2d", &report->year, &report->month_number) != 2 ||
	    report->month_number < 1 || report->month_number > 12)
		return false;
	snprintf(report->title, sizeof report->title, "%s %d", names[report->month_number - 1],
		 report->year);
	report->days = days_in_month(report->year, report->month_number);
	const msgpack_object *places = tool_find(state, "locations");
	if (!places || places->type != MSGPACK_OBJECT_ARRAY)
		return false;
	for (uint32_t i = 0; i < places->via.array.size && report->places_count < PLACES_MAX; i++)
		read_place(report, &places->via.array.ptr[i]);
	report->charts = report->places_count + SHARED_CHARTS;
	report->pages = 1 + (report->charts + 1) / 2 + report->places_count;
	return report->places_count > 0;
}

/* --- drawing: text and lines ------------------------------------------------------------------ */

static void use(cairo_t *cr, struct colour colour)
{
	cairo_set_source_rgb(cr, colour.red, colour.green, colour.blue);
}

static void use_faint(cairo_t *cr, struct colour colour, double alpha)
{
	cairo_set_source_rgba(cr, colour.red, colour.green, colour.blue, alpha);
}

static void fill_box(cairo_t *cr, struct box box)
{
	cairo_rectangle(cr, box.x, box.y, box.width, box.height);
	cairo_fill(cr);
}

static void draw_line(cairo_t *cr, double x1, double y1, double x2, double y2, double width)
{
	cairo_set_line_width(cr, width);
	cairo_move_to(cr, x1, y1);
	cairo_line_to(cr, x2, y2);
	cairo_stroke(cr);
}

enum align { LEFT, CENTRE, RIGHT };

static void font(cairo_t *cr, double size, bool bold)
{
	cairo_select_font_face(cr, FONT, CAIRO_FONT_SLANT_NORMAL,
			       bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
	cairo_set_font_size(cr, size);
}

static void put(cairo_t *cr, double x, double y, enum align align, const char *text)
{
	cairo_text_extents_t extents;
	cairo_text_extents(cr, text, &extents);
	double back = align == LEFT    ? 0
		      : align == RIGHT ? extents.x_advance
				       : extents.x_advance / 2;
	cairo_move_to(cr, x - back, y);
	cairo_show_text(cr, text);
}

[[gnu::format(printf, 5, 6)]] static void putf(cairo_t *cr, double x, double y, enum align align,
					       const char *format, ...)
{
	char text[128];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	put(cr, x, y, align, text);
}

/* --- charts ----------------------------------------------------------------------------------- */

/* A plane of days and values. */
struct axes {
	struct box plot;
	double low, high;
	int days;
};

static double day_x(const struct axes *axes, double day)
{
	return axes->plot.x + axes->plot.width * (day - 0.5) / axes->days;
}

static double value_y(const struct axes *axes, double value)
{
	return axes->plot.y + axes->plot.height * (axes->high - value) / (axes->high - axes->low);
}

/* 1, 2 or 5 times a power of ten, so that about five lines fit. */
static double nice_step(double range)
{
	double power = pow(10, floor(log10(range / 5)));
	double times = range / 5 / power;
	return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static struct axes draw_axes(struct report *report, struct box box, double low, double high)
{
	cairo_t *cr = report->cr;
	double step = nice_step(fmax(high - low, 1));
	struct axes axes = {
		.plot = { box.x + 30, box.y + 52, box.width - 30, box.height - 76 },
		.low = floor(low / step) * step,
		.high = ceil(high / step) * step,
		.days = report->days,
	};
	if (axes.high <= axes.low)
		axes.high = axes.low + step;
	font(cr, 7.5, false);
	for (int i = 0; axes.low + i * step <= axes.high + step / 2; i++) {
		double value = axes.low + i * step, y = value_y(&axes, value);
		use(cr, line_grey);
		draw_line(cr, axes.plot.x, y, axes.plot.x + axes.plot.width, y,
			  fabs(value) < step / 2 ? 1.2 : 0.5);
		use(cr, grey);
		putf(cr, axes.plot.x - 6, y + 2.6, RIGHT, "%g", fabs(value) < 1e-9 ? 0 : value);
	}
	for (int day = 1; day <= report->days; day++) {
		double bottom = axes.plot.y + axes.plot.height;
		bool named = day == 1 || day % 5 == 0;
		use(cr, grey);
		draw_line(cr, day_x(&axes, day), bottom, day_x(&axes, day),
			  bottom + (named ? 5 : 3), 0.5);
		if (named)
			putf(cr, day_x(&axes, day), bottom + 14, CENTRE, "%d", day);
	}
	return axes;
}

static void draw_heading(struct report *report, struct box box, const char *title, const char *unit)
{
	cairo_t *cr = report->cr;
	font(cr, 13, true);
	use(cr, ink);
	put(cr, box.x, box.y + 14, LEFT, title);
	font(cr, 8.5, false);
	use(cr, grey);
	put(cr, box.x, box.y + 29, LEFT, unit);
}

static void draw_legend(struct report *report, struct box box)
{
	cairo_t *cr = report->cr;
	double x = box.x + box.width;
	font(cr, 8.5, false);
	for (int i = report->places_count - 1; i >= 0; i--) {
		const struct place *place = &report->places[i];
		cairo_text_extents_t extents;
		cairo_text_extents(cr, place->name, &extents);
		use(cr, ink);
		put(cr, x, box.y + 29, RIGHT, place->name);
		x -= extents.x_advance + 14;
		use(cr, place->colour);
		fill_box(cr, (struct box){ x, box.y + 21.5, 9, 9 });
		x -= 14;
	}
}

static double temp_mean(const struct day *day)
{
	return (day->temp_max + day->temp_min) / 2;
}

/* The least and the largest value of all days and places, of the member at `offset`. */
static void find_bounds(const struct report *report, size_t offset, double *low, double *high)
{
	*low = INFINITY;
	*high = -INFINITY;
	for (int i = 0; i < report->places_count; i++) {
		for (int at = 0; at < report->places[i].count; at++) {
			double value;
			const struct day *day = &report->places[i].days[at];
			memcpy(&value, (const char *)day + offset, sizeof value);
			*low = fmin(*low, value);
			*high = fmax(*high, value);
		}
	}
}

/* One place: the band from the lowest to the highest of each day. */
static void draw_range(struct report *report, struct box box, const struct place *place)
{
	cairo_t *cr = report->cr;
	double low, high, ignored;
	char title[96];
	snprintf(title, sizeof title, "Temperature range, %s", place->name);
	draw_heading(report, box, title, "°C, lowest to highest of each day, with the mean");
	/* The same scale for every place, so that they can be compared. */
	find_bounds(report, offsetof(struct day, temp_min), &low, &ignored);
	find_bounds(report, offsetof(struct day, temp_max), &ignored, &high);
	struct axes axes = draw_axes(report, box, low, high);
	double width = axes.plot.width / axes.days * 0.56;
	for (int i = 0; i < place->count; i++) {
		const struct day *day = &place->days[i];
		double top = value_y(&axes, day->temp_max), bottom = value_y(&axes, day->temp_min);
		use_faint(cr, place->colour, 0.75);
		fill_box(cr, (struct box){ day_x(&axes, day->number) - width / 2, top, width,
					   fmax(bottom - top, 1) });
	}
	use(cr, ink);
	cairo_new_path(cr);
	for (int i = 0; i < place->count; i++)
		cairo_line_to(cr, day_x(&axes, place->days[i].number),
			      value_y(&axes, temp_mean(&place->days[i])));
	cairo_set_line_width(cr, 1.1);
	cairo_stroke(cr);
}

static void draw_wind(struct report *report, struct box box)
{
	cairo_t *cr = report->cr;
	double low, high;
	draw_heading(report, box, "Wind", "m/s, average of each day");
	find_bounds(report, offsetof(struct day, wind), &low, &high);
	struct axes axes = draw_axes(report, box, 0, high);
	for (int i = 0; i < report->places_count; i++) {
		const struct place *place = &report->places[i];
		use(cr, place->colour);
		cairo_new_path(cr);
		for (int at = 0; at < place->count; at++)
			cairo_line_to(cr, day_x(&axes, place->days[at].number),
				      value_y(&axes, place->days[at].wind));
		cairo_set_line_width(cr, 1.8);
		cairo_stroke(cr);
		for (int at = 0; at < place->count; at++) {
			cairo_arc(cr, day_x(&axes, place->days[at].number),
				  value_y(&axes, place->days[at].wind), 2, 0, 2 * M_PI);
			cairo_fill(cr);
		}
	}
}

static void draw_precipitation(struct report *report, struct box box)
{
	double low, high;
	draw_heading(report, box, "Precipitation", "mm, of each day");
	find_bounds(report, offsetof(struct day, precipitation), &low, &high);
	struct axes axes = draw_axes(report, box, 0, high);
	double width = axes.plot.width / axes.days * 0.8 / report->places_count;
	for (int i = 0; i < report->places_count; i++) {
		const struct place *place = &report->places[i];
		use(report->cr, place->colour);
		for (int at = 0; at < place->count; at++) {
			double x = day_x(&axes, place->days[at].number) +
				   width * (i - report->places_count / 2.);
			double top = value_y(&axes, place->days[at].precipitation);
			fill_box(report->cr,
				 (struct box){ x, top, width * 0.9, value_y(&axes, 0) - top });
		}
	}
}

static double total_precipitation(const struct place *place)
{
	double total = 0;
	for (int i = 0; i < place->count; i++)
		total += place->days[i].precipitation;
	return total;
}

static void draw_sums(struct report *report, struct box box)
{
	cairo_t *cr = report->cr;
	double high = 0;
	draw_heading(report, box, "Precipitation since the first of the month", "mm, added up");
	for (int i = 0; i < report->places_count; i++)
		high = fmax(high, total_precipitation(&report->places[i]));
	struct axes axes = draw_axes(report, box, 0, high);
	for (int i = 0; i < report->places_count; i++) {
		const struct place *place = &report->places[i];
		double sum = 0, bottom = value_y(&axes, 0);
		cairo_new_path(cr);
		for (int at = 0; at < place->count; at++) {
			sum += place->days[at].precipitation;
			cairo_line_to(cr, day_x(&axes, place->days[at].number),
				      value_y(&axes, sum));
		}
		use(cr, place->colour);
		cairo_set_line_width(cr, 1.8);
		cairo_stroke_preserve(cr);
		cairo_line_to(cr, day_x(&axes, place->days[place->count - 1].number), bottom);
		cairo_line_to(cr, day_x(&axes, place->days[0].number), bottom);
		cairo_close_path(cr);
		use_faint(cr, place->colour, 0.12);
		cairo_fill(cr);
	}
}

static int count_kind(const struct place *place, const char *kind)
{
	int count = 0;
	for (int i = 0; i < place->count; i++)
		count += strcmp(place->days[i].weather, kind) == 0;
	return count;
}

static void draw_kinds(struct report *report, struct box box)
{
	cairo_t *cr = report->cr;
	double height = fmin(46, (box.height - 90) / report->places_count - 16);
	draw_heading(report, box, "Kinds of weather", "days of the month");
	for (int i = 0; i < report->places_count; i++) {
		const struct place *place = &report->places[i];
		double x = box.x + 64, y = box.y + 52 + i * (height + 18);
		double unit = (box.width - 64) / place->count;
		font(cr, 9, true);
		use(cr, ink);
		put(cr, box.x, y + height / 2 + 3, LEFT, place->name);
		for (int kind = 0; kind < KINDS; kind++) {
			int count = count_kind(place, kinds[kind].name);
			if (count == 0)
				continue;
			use(cr, kinds[kind].colour);
			fill_box(cr, (struct box){ x, y, unit * count - 1, height });
			use(cr, kind == 2 ? white : ink);
			putf(cr, x + unit * count / 2, y + height / 2 + 3, CENTRE, "%d", count);
			x += unit * count;
		}
	}
	double x = box.x + 64, y = box.y + 52 + report->places_count * (height + 18) + 8;
	font(cr, 8.5, false);
	for (int kind = 0; kind < KINDS; kind++) {
		use(cr, kinds[kind].colour);
		fill_box(cr, (struct box){ x, y - 8, 9, 9 });
		use(cr, ink);
		put(cr, x + 14, y, LEFT, kinds[kind].name);
		x += 78;
	}
}

static const char *draw_chart(struct report *report, int number, struct box box)
{
	static const struct {
		const char *name;
		void (*draw)(struct report *report, struct box box);
	} shared[SHARED_CHARTS] = { { "precipitation", draw_precipitation },
				    { "precipitation, added up", draw_sums },
				    { "wind", draw_wind },
				    { "kinds of weather", draw_kinds } };
	if (number < report->places_count) {
		draw_range(report, box, &report->places[number]);
		return "temperature range";
	}
	number -= report->places_count;
	if (shared[number].draw != draw_kinds)
		draw_legend(report, box);
	shared[number].draw(report, box);
	return shared[number].name;
}

/* --- pages ----------------------------------------------------------------------------------- */

static void page_start(struct report *report, const char *title)
{
	cairo_t *cr = report->cr;
	report->page++;
	use(cr, navy);
	fill_box(cr, (struct box){ 0, 0, PAGE_WIDTH, 6 });
	font(cr, 9, true);
	put(cr, MARGIN, 36, LEFT, title);
	font(cr, 9, false);
	use(cr, grey);
	putf(cr, PAGE_WIDTH - MARGIN, 36, RIGHT, "Weather report · %s", report->title);
	use(cr, line_grey);
	draw_line(cr, MARGIN, 46, PAGE_WIDTH - MARGIN, 46, 0.7);
}

static void page_end(struct report *report)
{
	cairo_t *cr = report->cr;
	use(cr, line_grey);
	draw_line(cr, MARGIN, PAGE_HEIGHT - 46, PAGE_WIDTH - MARGIN, PAGE_HEIGHT - 46, 0.7);
	font(cr, 8, false);
	use(cr, grey);
	put(cr, MARGIN, PAGE_HEIGHT - 32, LEFT, "Made by Holdfast's example tool build_report");
	putf(cr, PAGE_WIDTH - MARGIN, PAGE_HEIGHT - 32, RIGHT, "%d / %d", report->page,
	     report->pages);
	cairo_show_page(cr);
}

static double place_value(const struct place *place, int measure)
{
	double high = -INFINITY, low = INFINITY, sum = 0, wettest = 0, wind = 0, gale = 0;
	int wet = 0;
	for (int i = 0; i < place->count; i++) {
		const struct day *day = &place->days[i];
		high = fmax(high, day->temp_max);
		low = fmin(low, day->temp_min);
		sum += temp_mean(day) / place->count;
		wettest = fmax(wettest, day->precipitation);
		wet += day->precipitation > 0;
		wind += day->wind / place->count;
		gale = fmax(gale, day->wind);
	}
	const double values[] = {
		sum,  high, low, total_precipitation(place), wettest, wet, place->count - wet,
		wind, gale
	};
	return values[measure];
}

static void draw_summary(struct report *report, double y)
{
	static const struct {
		const char *name, *unit;
		int decimals;
	} measures[] = { { "Mean temperature", "°C", 1 },
			 { "Highest temperature", "°C", 1 },
			 { "Lowest temperature", "°C", 1 },
			 { "Precipitation", "mm", 1 },
			 { "Wettest day", "mm", 1 },
			 { "Days with precipitation", "", 0 },
			 { "Dry days", "", 0 },
			 { "Mean wind", "m/s", 1 },
			 { "Windiest day", "m/s", 1 } };
	constexpr int count = sizeof measures / sizeof measures[0];
	constexpr double row = 27;
	cairo_t *cr = report->cr;
	double column = (INNER_WIDTH - 190) / report->places_count;
	font(cr, 10, true);
	for (int i = 0; i < report->places_count; i++) {
		double right = MARGIN + 190 + column * (i + 1);
		use(cr, report->places[i].colour);
		fill_box(cr, (struct box){ right - column + 12, y + 9, column - 12, 2.5 });
		put(cr, right - 8, y, RIGHT, report->places[i].name);
	}
	y += 12;
	for (int measure = 0; measure < count; measure++, y += row) {
		if (measure % 2 == 0) {
			use(cr, pale);
			fill_box(cr, (struct box){ MARGIN, y, INNER_WIDTH, row });
		}
		font(cr, 10, false);
		use(cr, ink);
		put(cr, MARGIN + 10, y + 17.5, LEFT, measures[measure].name);
		font(cr, 10.5, true);
		for (int i = 0; i < report->places_count; i++)
			putf(cr, MARGIN + 190 + column * (i + 1) - 8, y + 17.5, RIGHT, "%.*f %s",
			     measures[measure].decimals, place_value(&report->places[i], measure),
			     measures[measure].unit);
	}
}

static void draw_title_page(struct report *report)
{
	cairo_t *cr = report->cr;
	report->page++;
	use(cr, navy);
	fill_box(cr, (struct box){ 0, 0, PAGE_WIDTH, 250 });
	for (int i = 0; i < report->places_count; i++) {
		use(cr, report->places[i].colour);
		fill_box(cr, (struct box){ PAGE_WIDTH * i / report->places_count, 250,
					   PAGE_WIDTH / report->places_count, 5 });
	}
	use(cr, white);
	font(cr, 12, false);
	put(cr, MARGIN, 110, LEFT, "Monthly weather report");
	font(cr, 36, true);
	put(cr, MARGIN, 156, LEFT, report->title);
	font(cr, 12, false);
	char names[256] = "";
	for (int i = 0; i < report->places_count; i++) {
		size_t len = strlen(names);
		snprintf(names + len, sizeof names - len, "%s%s", i ? "  ·  " : "",
			 report->places[i].name);
	}
	put(cr, MARGIN, 190, LEFT, names);
	font(cr, 14, true);
	use(cr, ink);
	put(cr, MARGIN, 312, LEFT, "The month at a glance");
	draw_summary(report, 350);
	int days = 0;
	for (int i = 0; i < report->places_count; i++)
		days += report->places[i].count;
	font(cr, 9, false);
	use(cr, grey);
	putf(cr, MARGIN, 640, LEFT, "From %d daily observations. %d charts and %d tables follow.",
	     days, report->charts, report->places_count);
	page_end(report);
}

/* 0 is Sunday. */
static int weekday(int year, int month, int day)
{
	static const int shift[] = { 0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4 };
	year -= month < 3;
	return (year + year / 4 - year / 100 + year / 400 + shift[month - 1] + day) % 7;
}

static struct colour colour_of_kind(const char *weather)
{
	for (int i = 0; i < KINDS; i++) {
		if (strcmp(kinds[i].name, weather) == 0)
			return kinds[i].colour;
	}
	return grey;
}

static void draw_day(struct report *report, const struct day *day, double y)
{
	static const char *const names[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	cairo_t *cr = report->cr;
	int week = weekday(report->year, report->month_number, day->number);
	font(cr, 9, false);
	use(cr, ink);
	put(cr, MARGIN + 10, y, LEFT, names[week]);
	putf(cr, MARGIN + 56, y, RIGHT, "%d", day->number);
	putf(cr, MARGIN + 140, y, RIGHT, "%.1f", day->temp_max);
	putf(cr, MARGIN + 210, y, RIGHT, "%.1f", day->temp_min);
	if (day->precipitation > 0)
		putf(cr, MARGIN + 312, y, RIGHT, "%.1f", day->precipitation);
	putf(cr, MARGIN + 384, y, RIGHT, "%.1f", day->wind);
	use(cr, colour_of_kind(day->weather));
	fill_box(cr, (struct box){ MARGIN + 412, y - 8, 9, 9 });
	use(cr, ink);
	put(cr, MARGIN + 427, y, LEFT, day->weather);
}

static void draw_table_page(struct report *report, const struct place *place)
{
	static const struct {
		const char *name;
		double x;
		enum align align;
	} heads[] = { { "Day", 10, LEFT },          { "Highest, °C", 140, RIGHT },
		      { "Lowest, °C", 210, RIGHT }, { "Precipitation, mm", 312, RIGHT },
		      { "Wind, m/s", 384, RIGHT },  { "Weather", 412, LEFT } };
	constexpr double row = 21;
	cairo_t *cr = report->cr;
	char title[96];
	snprintf(title, sizeof title, "Day by day, %s", place->name);
	page_start(report, title);
	font(cr, 8.5, true);
	use(cr, place->colour);
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
		put(cr, MARGIN + heads[i].x, 76, heads[i].align, heads[i].name);
	fill_box(cr, (struct box){ MARGIN, 84, INNER_WIDTH, 2 });
	for (int i = 0; i < place->count; i++) {
		double y = 86 + i * row;
		if (i % 2) {
			use(cr, pale);
			fill_box(cr, (struct box){ MARGIN, y, INNER_WIDTH, row });
		}
		draw_day(report, &place->days[i], y + 14);
	}
	page_end(report);
}

/* --- the run ---------------------------------------------------------------------------------- */

static cairo_status_t on_pdf_bytes(void *ctx, const unsigned char *bytes, unsigned len)
{
	msgpack_sbuffer *pdf = ctx;
	return msgpack_sbuffer_write(pdf, (const char *)bytes, len) == 0 ? CAIRO_STATUS_SUCCESS
									 : CAIRO_STATUS_NO_MEMORY;
}

/* False: the task was cancelled meanwhile. */
static bool rest(struct tool_run *run, int64_t ms)
{
	for (; ms > 0 && !tool_cancelled(run); ms -= REST_SLICE_MS) {
		int64_t slice = ms < REST_SLICE_MS ? ms : REST_SLICE_MS;
		nanosleep(&(struct timespec){ .tv_nsec = slice * 1'000'000 }, nullptr);
	}
	return !tool_cancelled(run);
}

static bool draw_charts(struct report *report)
{
	int64_t pace_ms = tool_int(tool_args(report->run), "pace_ms", PACE_MS);
	constexpr double top = 66, height = (PAGE_HEIGHT - 66 - 66) / 2;
	for (int i = 0; i < report->charts; i++) {
		struct box box = { MARGIN, top + (i % 2) * height, INNER_WIDTH, height - 24 };
		char checkpoint[32];
		if (i % 2 == 0)
			page_start(report, "Charts");
		const char *name = draw_chart(report, i, box);
		snprintf(checkpoint, sizeof checkpoint, "chart-%d", i + 1);
		bool reached = tool_recall(report->run, checkpoint) != nullptr;
		tool_progress(report->run, (i + 0.5) / (report->charts + 1), "chart %d of %d: %s",
			      i + 1, report->charts, name);
		if (!reached && !rest(report->run, pace_ms))
			return false;
		if (!reached) {
			tool_pack_text(tool_pack(report->run), name);
			tool_checkpoint(report->run, checkpoint);
		}
		bool last = i + 1 == report->charts;
		if (i % 2 == 1 || last)
			page_end(report);
	}
	return true;
}

static bool draw_report(struct report *report)
{
	cairo_surface_t *surface = cairo_pdf_surface_create_for_stream(on_pdf_bytes, &report->pdf,
								       PAGE_WIDTH, PAGE_HEIGHT);
	char title[64], date[32];
	snprintf(title, sizeof title, "Weather report, %s", report->title);
	/* The time of the data, not of the run: a repeat gives the same bytes. */
	snprintf(date, sizeof date, "%04d-%02d-%02dT00:00:00Z", report->year, report->month_number,
		 report->days);
	cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_TITLE, title);
	cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATOR, "build_report");
	cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE, date);
	cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_MOD_DATE, date);
	report->cr = cairo_create(surface);
	draw_title_page(report);
	bool whole = draw_charts(report);
	for (int i = 0; whole && i < report->places_count; i++)
		draw_table_page(report, &report->places[i]);
	cairo_destroy(report->cr);
	cairo_surface_finish(surface);
	if (cairo_surface_status(surface) != CAIRO_STATUS_SUCCESS) {
		fprintf(stderr, "cairo: %s\n",
			cairo_status_to_string(cairo_surface_status(surface)));
		exit(EXIT_FAILURE);
	}
	cairo_surface_destroy(surface);
	return whole;
}

static int give_result(struct report *report)
{
	char name[32];
	snprintf(name, sizeof name, "report-%.7s.pdf", report->month);
	tool_progress(report->run, 1, "storing %s", name);
	tool_artifact(report->run, name, "application/pdf", report->pdf.data, report->pdf.size);
	msgpack_packer *pack = tool_pack(report->run);
	msgpack_pack_map(pack, 3);
	tool_pack_text(pack, "pdf");
	tool_pack_text(pack, name);
	tool_pack_text(pack, "pages");
	msgpack_pack_int(pack, report->page);
	tool_pack_text(pack, "bytes");
	msgpack_pack_uint64(pack, report->pdf.size);
	return tool_result(report->run);
}

static int run_render(struct tool_run *run)
{
	struct report report = { .run = run };
	if (!read_report(&report))
		return tool_error(run, "no data for %s",
				  tool_text(run, tool_args(run), "month", "this month"));
	msgpack_sbuffer_init(&report.pdf);
	bool whole = draw_report(&report);
	int status = whole ? give_result(&report) : tool_error(run, "cancelled");
	msgpack_sbuffer_destroy(&report.pdf);
	return status;
}

int main(void)
{
	return tool_main(run_render);
}
