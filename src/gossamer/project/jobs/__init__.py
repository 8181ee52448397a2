"""Jobs: begun, run, shown, ended. runner.py drives one; worker_pool.py decides which ones a process works on."""
