#!/usr/bin/env python3
"""A page about some numbers: their figures, a bar chart and a table, as one HTML file. A program in
plain mode (arguments on stdin, result on stdout) with the standard library alone. Each step is a
function that runs once under `holdfast step`: after a crash only the rest is done."""

import csv
import html
import json
import math
import os
import statistics
import subprocess
import sys
import time

WIDTH, BAR, GAP, LABEL = 640, 22, 8, 160  # px
ROWS_MAX = 100


def step(name, **given):
    """What the function `name` gives, of this attempt or an earlier one."""
    done = subprocess.run(["holdfast", "step", name, "--", sys.executable, __file__, name],
                          input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    time.sleep(given.get("pace_ms", 0) / 1000)
    return json.loads(done.stdout)


def progress(fraction, text):
    subprocess.run(["holdfast", "step", "--progress", str(fraction), text], check=False)


def figures(rows, **_):
    values = [row["value"] for row in rows]
    return {"count": len(values), "total": sum(values), "mean": round(statistics.fmean(values), 3),
            "median": statistics.median(values), "least": min(values), "most": max(values),
            "deviation": round(statistics.pstdev(values), 3)}


def chart(rows, **_):
    most = max(abs(row["value"]) for row in rows) or 1
    parts = []
    for number, row in enumerate(rows):
        y = number * (BAR + GAP)
        width = round(abs(row["value"]) / most * (WIDTH - LABEL - 80), 1)
        color = "#2b6cb0" if row["value"] >= 0 else "#c05621"
        parts.append(f'<text x="{LABEL - 8}" y="{y + 16}" text-anchor="end">'
                     f'{html.escape(row["label"][:24])}</text>'
                     f'<rect x="{LABEL}" y="{y}" width="{width}" height="{BAR}" fill="{color}"/>'
                     f'<text x="{LABEL + width + 6}" y="{y + 16}">{row["value"]:g}</text>')
    return {"svg": f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
                   f'height="{len(rows) * (BAR + GAP)}" font-family="sans-serif" font-size="13">'
                   + "".join(parts) + "</svg>"}


def page(title, numbers, svg, **_):
    cells = "".join(f"<tr><th>{name}<td>{value}" for name, value in numbers.items())
    return {"html": f'<!doctype html><html lang="en"><meta charset="utf-8">'
                    f"<title>{html.escape(title)}</title><h1>{html.escape(title)}</h1>"
                    f"{svg}<table>{cells}</table></html>\n"}


def read_rows(text):
    rows = []
    for number, line in enumerate(csv.reader(text.splitlines()), 1):
        try:
            label, value = line
            rows.append({"label": label.strip(), "value": float(value)})
        except ValueError:
            sys.exit(f"line {number} of csv is not label,value: {','.join(line)}")
    if not 1 <= len(rows) <= ROWS_MAX or not all(math.isfinite(row["value"]) for row in rows):
        sys.exit(f"a page shows 1 to {ROWS_MAX} finite numbers, these are {len(rows)}")
    return rows


def main():
    given = json.load(sys.stdin)
    title, rows = given["title"], read_rows(given["csv"])
    pace = {"pace_ms": given.get("pace_ms", 0)}
    numbers = step("figures", rows=rows, **pace)
    progress(0.3, "figures")
    svg = step("chart", rows=rows, **pace)["svg"]
    progress(0.7, "chart")
    text = step("page", title=title, numbers=numbers, svg=svg, **pace)["html"]
    with open(os.path.join(os.environ["HOLDFAST_ARTIFACTS"], "report.html"), "w",
              encoding="utf-8") as file:
        file.write(text)
    print(json.dumps({"page": "report.html", **numbers}))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(globals()[sys.argv[1]](**json.load(sys.stdin))))
    else:
        main()
