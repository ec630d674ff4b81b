-- Names that may have been meant, for errors about an unknown name.

-- Returns the end of such an error: "; did you mean nightly?", or an empty text. At most three of the known names are
-- given, the best first. A name is given if it
-- - differs in upper and lower case only, or ends in the word (touch: app.touch; Berlin: Europe/Berlin),
-- - has one character more, one less, one other, or two of them exchanged,
-- - or, if no name does, has most of its pairs of characters in common with the word.
CREATE FUNCTION pgsched.did_you_mean(word text, known text[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH typed AS MATERIALIZED (
        SELECT w.small, length(w.small) AS size,
            ARRAY(SELECT overlay(w.small PLACING '' FROM n FOR 1) FROM generate_series(1, length(w.small)) n) AS shorter,
            ARRAY(SELECT substr(w.small, n, 2) FROM generate_series(1, length(w.small) - 1) n) AS pairs
        FROM (SELECT lower(word) AS small) w WHERE length(w.small) BETWEEN 1 AND 200
    ), alike AS (
        SELECT k.name, CASE
            WHEN k.small = t.small OR right(k.small, t.size + 1) IN ('.' || t.small, '/' || t.small) THEN 3
            WHEN greatest(k.size, t.size) >= 4 AND abs(k.size - t.size) <= 1 AND k.strange <= 1
                AND (k.small = ANY (t.shorter) OR EXISTS (
                    SELECT FROM generate_series(1, k.size) n, overlay(k.small PLACING '' FROM n FOR 1) s(text)
                    WHERE s.text = t.small OR s.text = ANY (t.shorter))) THEN 2
            -- of names whose lengths differ more, or that have more other characters, too few pairs can be common ones
            WHEN least(k.size, t.size) >= 0.5 * greatest(k.size, t.size) AND k.strange <= 0.4 * k.size AND k.size + t.size > 2 THEN (
                SELECT 2.0 * count(*) FROM generate_series(1, k.size - 1) n WHERE substr(k.small, n, 2) = ANY (t.pairs)
                ) / (k.size + t.size - 2) END AS likeness, k.place
        FROM typed t CROSS JOIN LATERAL (
            SELECT u.name, lower(u.name) AS small, length(lower(u.name)) AS size,
                length(translate(lower(u.name), t.small, '')) AS strange, u.place
            FROM unnest(known) WITH ORDINALITY u(name, place)) k
        WHERE k.name <> word
    )
    SELECT coalesce('; did you mean ' || string_agg(b.name, ' or ' ORDER BY b.likeness DESC, b.place) || '?', '')
    FROM (SELECT a.* FROM alike a WHERE a.likeness >= CASE WHEN (SELECT max(m.likeness) FROM alike m) >= 2 THEN 2 ELSE 0.6 END
          ORDER BY a.likeness DESC, a.place LIMIT 3) b
$$;

-- The end of an error about an unknown time zone.
CREATE FUNCTION pgsched.similar_zones(zone text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
    SELECT pgsched.did_you_mean(zone, ARRAY(
        SELECT ltrim(r.region || '/' || z.place, '/')
        FROM unnest(ARRAY['', 'Africa', 'America', 'Antarctica', 'Arctic', 'Asia', 'Atlantic', 'Australia', 'Brazil', 'Canada',
                          'Chile', 'Etc', 'Europe', 'Indian', 'Mexico', 'Pacific', 'US']) WITH ORDINALITY r(region, rank),
            regexp_split_to_table(btrim(pgsched.listed_timezones(r.region), E' \n'), '\s+') z(place) ORDER BY r.rank, z.place))
$$;

-- Refuses the name of a job that does not exist. It names jobs that contain this text, or else jobs of similar spelling:
-- of those that the caller may see, at most 10,000 are read. A function that runs with the rights of the tables' owner
-- may call it: it names jobs of the caller only.
CREATE FUNCTION pgsched.refuse_unknown_job(job text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owners name[] := ARRAY(SELECT o.owner FROM (SELECT DISTINCT j.owner FROM pgsched.jobs j) o WHERE pgsched.may_change(o.owner));
    known text[] := ARRAY(SELECT j.name FROM pgsched.jobs j WHERE j.owner = ANY (owners) ORDER BY j.name LIMIT 10000);
    hint text := (SELECT '; did you mean ' || string_agg(c.name, ' or ') || '?' FROM (
        SELECT k.name FROM unnest(known) k(name) WHERE job <> '' AND strpos(lower(k.name), lower(job)) > 0
        ORDER BY length(k.name), k.name LIMIT 3) c);
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'no_data_found', MESSAGE = format('job: there is no job named "%s"%s', left(job, 200),
        coalesce(hint, pgsched.did_you_mean(job, known)));
END $$;
