-- limit_save: write down the tokens that are left, in the transaction that admits.
-- params: parallel arrays names text[], tokens float8[], unstarteds int[]; at timestamptz
-- returns: nothing
-- locks: those buckets
INSERT INTO pgsched.buckets AS b (name, tokens, at, unstarted)
SELECT g.name, g.tokens, %(at)s, g.unstarted
FROM unnest(%(names)s::text[], %(tokens)s::float8[], %(unstarteds)s::int[]) AS g(name, tokens, unstarted)
ON CONFLICT (name) DO UPDATE SET tokens = excluded.tokens, at = excluded.at, unstarted = excluded.unstarted
