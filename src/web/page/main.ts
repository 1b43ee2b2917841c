import { html } from "htm/preact";
import { render } from "preact";
import { interceptLinks } from "./router.js";
import { App } from "./app.js";
import { subscribeToChanges } from "./liveEvents.js";
import { followToken } from "./apiClient.js";
import { followTheme } from "./theme.js";

followTheme();
followToken();
interceptLinks();
subscribeToChanges();
render(html`<${App} />`, document.body);
