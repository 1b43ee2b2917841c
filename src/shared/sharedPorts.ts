interface SharedPortsEvents {
  /** Another process of the cluster on this machine, the leader, asks for this port. */
  wanted: [port: number];
  /** Another process of the cluster on this machine has freed this port. */
  freed: [port: number];
  /** Another process of the cluster on this machine asks whether this one listens on this port. */
  asked: [port: number];
  /** Another process of the cluster on this machine listens on this port. */
  used: [port: number];
}

/** How the processes of a cluster on one machine agree on which of them listens on a port. */
export interface SharedPorts {
  /** Asks the other processes to free the port. It may not reach them, so it is repeated while the port is in use. */
  request(port: number): void;
  /** Tells the other processes that the port is free. */
  announceFreed(port: number): void;
  /** Asks the other processes whether one of them listens on the port. Like a request, it may not reach them. */
  ask(port: number): void;
  /** Tells the other processes that this one listens on the port. */
  announceUsed(port: number): void;
  on<E extends keyof SharedPortsEvents>(event: E, listener: (...values: SharedPortsEvents[E]) => void): unknown;
}
