interface SharedPortsEvents {
  /** The leader asks for this port. */
  wanted: [port: number];
  freed: [port: number];
  /** Does this process listen on this port? */
  asked: [port: number];
  used: [port: number];
}

/**
 * How the processes of a cluster on one machine agree on which of them listens on a port. No message is sure to arrive.
 */
export interface SharedPorts {
  /** Repeated while the port is in use. */
  request(port: number): void;
  announceFreed(port: number): void;
  ask(port: number): void;
  announceUsed(port: number): void;
  on<E extends keyof SharedPortsEvents>(event: E, listener: (...values: SharedPortsEvents[E]) => void): unknown;
}
