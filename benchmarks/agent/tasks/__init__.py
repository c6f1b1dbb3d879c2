"""One file per task: the project, the defect planted in it, the calls with each set of servers, the check."""
