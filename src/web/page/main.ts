/// <reference lib="dom" />
document.title = "pg-task";
