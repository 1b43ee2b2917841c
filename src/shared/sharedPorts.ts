/**
 * About a port: the leader asks for it (repeated while it is in use), a process frees it, asks who listens on it, or says
 * that it does so itself.
 */
export type PortMessage = "wanted" | "freed" | "asked" | "used";

/**
 * How the processes of a cluster on one machine agree on which of them listens on a port. No message is sure to arrive.
 */
export interface SharedPorts {
  tell(message: PortMessage, port: number): void;
  on(event: PortMessage, listener: (port: number) => void): unknown;
}
