"""Workers: their processes, health, scaling, and the results that wait on their disks."""
