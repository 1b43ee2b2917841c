import { html } from "htm/preact";
import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Place } from "./graphLayout.js";

export interface Mark extends Place {
  readonly key: string;
  readonly class: string;
}

const zoomStep = 1.25;
const minZoom = 0.25;
const maxZoom = 2;

const clampZoom = (zoom: number): number => Math.max(minZoom, Math.min(maxZoom, zoom));

/** Scrolls and zooms a drawing. If it does not fit, a small map shows which part of it is in view. */
export function PanZoom(props: {
  label: string;
  width: number;
  height: number;
  /** What is in the middle of the view at first. */
  middle: Place | undefined;
  marks: readonly Mark[];
  children: ComponentChildren;
}): VNode {
  const { label, width, height, middle, marks, children } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [zoom, setZoom] = useState(1);
  const [view, setView] = useState<Place>({ x: 0, y: 0, width, height });
  /** The point of the drawing that stays where it is in the view. */
  const kept = useRef<{ x: number; y: number; left: number; top: number } | null>(null);
  const measure = (): void => {
    const { current } = scroller;
    if (current === null) return;
    const { scrollLeft: x, scrollTop: y, clientWidth, clientHeight } = current;
    setView({ x, y, width: clientWidth, height: clientHeight });
  };
  const centreOn = (x: number, y: number): void => {
    scroller.current?.scrollTo(x * zoom - view.width / 2, y * zoom - view.height / 2);
  };
  useLayoutEffect(() => {
    const { current } = scroller;
    if (current === null) return undefined;
    if (middle !== undefined) {
      current.scrollLeft = middle.x + middle.width / 2 - current.clientWidth / 2;
      current.scrollTop = middle.y + middle.height / 2 - current.clientHeight / 2;
    }
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (kept.current === null) return;
    const { x, y, left, top } = kept.current;
    scroller.current?.scrollTo(x * zoom - left, y * zoom - top);
    measure();
  }, [zoom]);
  const zoomTo = (wanted: number, left = view.width / 2, top = view.height / 2): void => {
    kept.current = { x: (view.x + left) / zoom, y: (view.y + top) / zoom, left, top };
    setZoom(clampZoom(wanted));
  };
  const fit = (): void => {
    const { paddingLeft, paddingTop, paddingBottom } = getComputedStyle(scroller.current ?? document.body);
    const [across, along] = [2 * parseFloat(paddingLeft), parseFloat(paddingTop) + parseFloat(paddingBottom)];
    zoomTo(Math.min(1, (view.width - across) / width, (view.height - along) / height));
    kept.current = { x: 0, y: 0, left: 0, top: 0 };
  };
  const wheel = (event: WheelEvent): void => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { left = 0, top = 0 } = scroller.current?.getBoundingClientRect() ?? {};
    zoomTo(zoom * zoomStep ** -Math.sign(event.deltaY), event.clientX - left, event.clientY - top);
  };
  const press = (event: KeyboardEvent): void => {
    const wanted = { "+": zoom * zoomStep, "-": zoom / zoomStep, "0": 1 }[event.key];
    if (wanted !== undefined && !event.ctrlKey && !event.metaKey) zoomTo(wanted);
  };
  const isCut = width * zoom > view.width + 1 || height * zoom > view.height + 1;
  return html`<div class="panel pan-zoom">
    <div
      class="scroller"
      ref=${scroller}
      tabindex="0"
      role="region"
      aria-label=${label}
      onScroll=${measure}
      onWheel=${wheel}
      onKeyDown=${press}
      onPointerDown=${startDrag}
      onPointerMove=${drag}
    >
      <div class="sheet" style=${{ width: `${width * zoom}px`, height: `${height * zoom}px` }}>
        <div class="canvas" style=${{ width: `${width}px`, height: `${height}px`, transform: `scale(${zoom})` }}>
          ${children}
        </div>
      </div>
    </div>
    <div class="tools">
      <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick=${() => zoomTo(zoom / zoomStep)}>
        −
      </button>
      <button
        type="button"
        aria-label=${`${Math.round(zoom * 100)} %: full size`}
        title="Full size (0)"
        onClick=${() => zoomTo(1)}
      >
        ${Math.round(zoom * 100)} %
      </button>
      <button
        type="button"
        aria-label="Zoom in"
        title="Zoom in (+), or Ctrl and the wheel"
        onClick=${() => zoomTo(zoom * zoomStep)}
      >
        +
      </button>
      <button type="button" onClick=${fit}>Fit</button>
    </div>
    ${isCut && html`<${Minimap} width=${width} height=${height} zoom=${zoom} view=${view} marks=${marks} show=${centreOn} />`}
  </div>`;
}

/** Only for a mouse: a finger scrolls anyway. A box that is dragged is a link. */
function startDrag(event: PointerEvent): void {
  const { target, currentTarget } = event;
  const isBackground = target instanceof Element && target.closest("a, button") === null;
  if (event.pointerType !== "mouse" || event.button !== 0 || !isBackground) return;
  if (currentTarget instanceof HTMLElement) currentTarget.setPointerCapture(event.pointerId);
}

function drag({ currentTarget, pointerId, movementX, movementY }: PointerEvent): void {
  if (!(currentTarget instanceof HTMLElement) || !currentTarget.hasPointerCapture(pointerId)) return;
  currentTarget.scrollBy(-movementX, -movementY);
}

const mapWidth = 150;
const maxMapHeight = 100;

/** Hidden from screen readers, which read the whole drawing anyway. */
function Minimap(props: {
  width: number;
  height: number;
  zoom: number;
  view: Place;
  marks: readonly Mark[];
  show: (x: number, y: number) => void;
}): VNode {
  const { width, height, zoom, view, marks, show } = props;
  const scale = Math.min(mapWidth / width, maxMapHeight / height);
  const move = (event: PointerEvent): void => {
    if (event.buttons !== 1 || !(event.currentTarget instanceof SVGElement)) return;
    const { left, top } = event.currentTarget.getBoundingClientRect();
    show((event.clientX - left) / scale, (event.clientY - top) / scale);
  };
  return html`<svg
    class="minimap"
    aria-hidden="true"
    width=${width * scale}
    height=${height * scale}
    viewBox=${`0 0 ${width} ${height}`}
    onPointerDown=${move}
    onPointerMove=${move}
  >
    ${marks.map(({ key, class: name, ...place }) => html`<rect key=${key} class=${name} ...${place} />`)}
    <rect
      class="view"
      x=${view.x / zoom}
      y=${view.y / zoom}
      width=${Math.min(width, view.width / zoom)}
      height=${Math.min(height, view.height / zoom)}
      vector-effect="non-scaling-stroke"
    />
  </svg>`;
}
