interface SharedPortsEvents {
  /** Another process of the cluster on this machine, the leader, asks for this port. */
  wanted: [port: number];
  /** Another process of the cluster on this machine has freed this port. */
  freed: [port: number];
}

/** How the processes of a cluster on one machine agree on which of them listens on a port. */
export interface SharedPorts {
  /** Asks the other processes to free the port. It may not reach them, so it is repeated while the port is in use. */
  request(port: number): void;
  /** Tells the other processes that the port is free. */
  announceFreed(port: number): void;
  on<E extends keyof SharedPortsEvents>(event: E, listener: (...values: SharedPortsEvents[E]) => void): unknown;
}
