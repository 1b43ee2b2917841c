import { html } from "htm/preact";
import { render } from "preact";
import { followLinks } from "./router.js";
import { App } from "./app.js";
import { followChanges } from "./liveEvents.js";
import { takeToken } from "./apiClient.js";
import { followTheme } from "./theme.js";

followTheme();
takeToken();
followLinks();
followChanges();
render(html`<${App} />`, document.body);
