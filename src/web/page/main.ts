import { html } from "htm/preact";
import { render } from "preact";
import { followLinks } from "./address.js";
import { App } from "./app.js";
import { followChanges } from "./live.js";
import { takeToken } from "./session.js";
import { followTheme } from "./theme.js";

followTheme();
takeToken();
followLinks();
followChanges();
render(html`<${App} />`, document.body);
