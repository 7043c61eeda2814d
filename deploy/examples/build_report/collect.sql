-- Phase `collect`: all days of the month asked for, by location, with their totals. $1 is the
-- arguments, $2 the states so far (none yet). A month without data gives rows 0 and no locations;
-- `render` then says so. The month is compared as text, so that 2015-13 is a month without data.
WITH asked AS (
    SELECT $1::json ->> 'month' AS month
),
days AS (
    SELECT w.* FROM weather w, asked WHERE to_char(w.date, 'YYYY-MM') = asked.month
),
kinds AS (
    SELECT location, json_object_agg(weather, n ORDER BY weather) AS counts
    FROM (SELECT location, weather, count(*) AS n FROM days GROUP BY location, weather) AS counted
    GROUP BY location
),
locations AS (
    SELECT location,
           json_build_object(
               'name', location,
               'days_count', count(*),
               'temp_highest', max(temp_max),
               'temp_lowest', min(temp_min),
               'temp_max_average', round(avg(temp_max), 1),
               'temp_min_average', round(avg(temp_min), 1),
               'precipitation_total', sum(precipitation),
               'precipitation_highest', max(precipitation),
               'wet_days', count(*) FILTER (WHERE precipitation > 0),
               'wind_average', round(avg(wind), 1),
               'wind_highest', max(wind),
               'weather', (SELECT counts FROM kinds WHERE kinds.location = days.location),
               'days', json_agg(json_build_object(
                   'date', date, 'temp_max', temp_max, 'temp_min', temp_min,
                   'precipitation', precipitation, 'wind', wind, 'weather', weather)
                   ORDER BY date)) AS described
    FROM days
    GROUP BY location
)
SELECT json_build_object(
           'month', (SELECT month FROM asked),
           'rows', (SELECT count(*) FROM days),
           'locations', (SELECT coalesce(json_agg(described ORDER BY location), '[]')
                         FROM locations))::text
