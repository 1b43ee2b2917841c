/**
 * Node.js 20 has no `navigator`, from which pg tells whether it runs in a Cloudflare Worker. Without it, pg looks at
 * `Response` instead, and Node.js then loads the code of `fetch`: 1.6 MB in each thread. Later versions of Node.js have
 * a `navigator` like this one.
 */
if (!("navigator" in globalThis)) {
  const [major] = process.versions.node.split(".");
  Object.assign(globalThis, { navigator: { userAgent: `Node.js/${major}` } });
}
