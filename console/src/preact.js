// What the console uses of Preact, in one place.
export { html } from "htm/preact";
export { createContext, render } from "preact";
export * from "preact/hooks";
