import { createHash } from "node:crypto";
import { TLSSocket } from "node:tls";
import type { Duplex } from "node:stream";

/** The hash to use for each signature algorithm. The keys are the DER-encoded object identifiers in hex. */
const hashes: Readonly<Record<string, string>> = {
  // RSA with MD5, RSA with SHA-1, and ECDSA with SHA-1. RFC 5929 replaces these weak hashes with SHA-256.
  "2a864886f70d010104": "sha256",
  "2a864886f70d010105": "sha256",
  "2a8648ce3d0401": "sha256",
  // RSA and then ECDSA, each with SHA-256, SHA-384 and SHA-512.
  "2a864886f70d01010b": "sha256",
  "2a864886f70d01010c": "sha384",
  "2a864886f70d01010d": "sha512",
  "2a8648ce3d040302": "sha256",
  "2a8648ce3d040303": "sha384",
  "2a8648ce3d040304": "sha512",
};

/** Returns the `tls-server-end-point` channel binding data; null without TLS or a suitable hash of the certificate. */
export function channelBindingData(stream: Duplex): Buffer | null {
  if (!(stream instanceof TLSSocket)) return null;
  const certificate = stream.getPeerCertificate().raw;
  if (certificate === undefined) return null;
  const hash = hashes[signatureAlgorithm(certificate)];
  return hash === undefined ? null : createHash(hash).update(certificate).digest();
}

/**
 * Returns the OID of the signature algorithm of a DER certificate: SEQUENCE { SEQUENCE { … }, SEQUENCE { OID, … }, … }
 */
function signatureAlgorithm(certificate: Buffer): string {
  const outer = element(certificate, 0);
  const signed = element(certificate, outer.start);
  const algorithm = element(certificate, signed.end);
  const { start, end } = element(certificate, algorithm.start);
  return certificate.toString("hex", start, end);
}

/** Returns where the content of the DER element at `offset` begins and ends. */
function element(bytes: Buffer, offset: number): { start: number; end: number } {
  const length = bytes.readUInt8(offset + 1);
  if (length < 0x80) return { start: offset + 2, end: offset + 2 + length };
  const size = length & 0x7f;
  const start = offset + 2 + size;
  return { start, end: start + bytes.readUIntBE(offset + 2, size) };
}
