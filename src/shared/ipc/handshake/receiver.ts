import { PgTaskError } from "../../errors.js";
import type { SlotReference } from "../messages.js";
import { Slots } from "./slots.js";

/** The child's side of a channel. */
export class HandshakeReceiver {
  readonly #slots: Slots;

  /** `buffer` is that of the parent's HandshakeSender. */
  constructor(buffer: SharedArrayBuffer) {
    this.#slots = new Slots(buffer);
  }

  /**
   * Takes a payload, which tells the parent so. Null when it is stale: the parent took it back, or it
   * has been taken already.
   *
   * @throws PgTaskError PROTOCOL_PAYLOAD when the reference is none of this channel's
   */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the doorbell message says T
  take<T extends object>(reference: SlotReference): T | null {
    const { slot, overflow } = reference;
    if (!Number.isInteger(slot) || slot < 0 || slot >= this.#slots.count) {
      throw new PgTaskError(
        "PROTOCOL_PAYLOAD",
        `expected a slot from 0 to ${this.#slots.count - 1}, got ${slot}`,
      );
    }
    // Copying a slot that is stale already would be wasted, and in the middle of a write.
    if (!this.#slots.isPublished(reference)) return null;
    // An overflow buffer is written once: it needs no copy that acknowledging would have to confirm.
    const bytes = overflow === undefined ? this.#slots.copy(slot) : Buffer.from(overflow);
    if (!this.#slots.acknowledge(reference)) return null;
    const payload: T = JSON.parse(bytes.toString("utf8"));
    return payload;
  }
}
