import { mask } from "../../logRedaction.js";

/** Masks the password of every connection string in `text`, both in URIs and after `password=`. */
export function maskPasswords(text: string): string {
  return text
    .replace(/^([a-z][a-z0-9+.-]*:\/\/[^:@/]*):.*@/is, `$1:${mask}@`)
    .replace(/([?&][^=&]*password=)[^&]*/gi, `$1${mask}`)
    .replace(/(password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\&])+)/gis, `$1${mask}`);
}
