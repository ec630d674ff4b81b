-- Tables and columns of this revision.
SELECT 1;
