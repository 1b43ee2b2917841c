import { attack } from "./attacks.js";

await attack("CREATEROLE");
