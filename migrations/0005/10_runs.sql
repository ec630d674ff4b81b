-- A run is written three times (queued, running, ended), and its row grows by a third when it is claimed. On a page that
-- is filled to 37 % both later versions find room beside the first, once the first is pruned: 22 rows of a task with a
-- small argument. At 50 % every fourth claim needed an entry in each index, and every fourth run another page; the ended
-- runs take the same room (figures and command: bench/RESULTS.md, "Room to work").
ALTER TABLE pgsched.runs SET (fillfactor = 37);
