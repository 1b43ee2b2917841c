import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Paths of a certificate and its key. */
export interface Certificate {
  readonly certificate: string;
  readonly key: string;
}

/** A certificate authority that keeps its files in a folder and uses the system's openssl. */
export class Authority implements Certificate {
  readonly certificate: string;
  readonly key: string;
  readonly #folder: string;

  private constructor(folder: string, { certificate, key }: Certificate) {
    this.#folder = folder;
    this.certificate = certificate;
    this.key = key;
  }

  static async create(folder: string, name: string): Promise<Authority> {
    const made = await selfSigned(folder, name);
    return new Authority(folder, made);
  }

  /** @param alternatives the subjectAltName of a server's certificate */
  async issue(name: string, alternatives?: string): Promise<Certificate> {
    const { certificate, key, request } = files(this.#folder, name);
    const subject = ["-subj", `/CN=${name}`];
    await run("openssl", ["req", "-new", ...newKey(key), ...subject, "-out", request]);
    const extensions = join(this.#folder, `${name}.ext`);
    await writeFile(extensions, alternatives === undefined ? "" : `subjectAltName=${alternatives}`);
    const authority = ["-CA", this.certificate, "-CAkey", this.key, "-CAcreateserial"];
    const signing = ["-days", "2", "-sha384", "-extfile", extensions, "-out", certificate];
    await run("openssl", ["x509", "-req", "-in", request, ...authority, ...signing]);
    return { certificate, key };
  }
}

async function selfSigned(folder: string, name: string): Promise<Certificate> {
  const { certificate, key } = files(folder, name);
  const subject = ["-subj", `/CN=${name}`, "-days", "2", "-out", certificate];
  await run("openssl", ["req", "-x509", ...newKey(key), ...subject]);
  return { certificate, key };
}

function files(folder: string, name: string): Certificate & { readonly request: string } {
  const file = (ending: string) => join(folder, `${name}.${ending}`);
  return { certificate: file("crt"), key: file("key"), request: file("csr") };
}

function newKey(path: string): string[] {
  return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path];
}
