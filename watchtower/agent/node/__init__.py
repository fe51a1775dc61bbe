"""What an agent learns of a node outside NVML: ranks, exits, kernel log, job files, trainers' logs. Never touches NVML or the network."""
