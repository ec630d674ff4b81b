ALTER TABLE pgsched.runs SET (fillfactor = 50);
