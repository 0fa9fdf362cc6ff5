// The one place that names the vendored file: everything else imports from here.
export {
  h, html, render, Component, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer,
} from "../vendor/htm/standalone.module.js";
