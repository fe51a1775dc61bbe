"""The NVML child process and the parent's end of its pipe. Only the child ever calls NVML."""
