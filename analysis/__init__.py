"""What many runs say together: tables and figures from run directories, and nothing else."""
