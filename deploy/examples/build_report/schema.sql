-- What the report is made of. Run once for each version of the tool, as the tool's own role in its
-- own schema; an older version may have made the table already. The rows come from weather.csv.
CREATE TABLE IF NOT EXISTS weather (
    location       text NOT NULL,
    date           date NOT NULL,
    precipitation  numeric NOT NULL,        -- mm
    temp_max       numeric NOT NULL,        -- degrees Celsius
    temp_min       numeric NOT NULL,
    wind           numeric NOT NULL,        -- average speed, see weather.md
    weather        text NOT NULL,           -- drizzle, rain, snow, sun or fog
    PRIMARY KEY (location, date)
);
