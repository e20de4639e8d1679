// Icons as drawings of one stroke; they are decoration, names are in the text beside them.

const DRAWINGS = {
  overview: "M3 13h4l3-8 4 14 3-6h4",
  topics: "M4 6h16M4 12h16M4 18h10",
  consumers:
    "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.6-3.6 3.2-5.5 6.500-5.500s5.900 1.900 6.500 5.500M16 4.300a3.500 3.500 0 0 1 0 6.400M18 14.800c1.900.8 3.100 2.500 3.500 5.200",
  queues: "M4 5h4v14H4zM10 5h4v14h-4zM16 5h4v14h-4z",
  storage:
    "M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v6c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12v6c0 1.700 3.600 3 8 3s8-1.300 8-3v-6",
  nodes: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  streams: "M3 8c3-4 6 4 9 0s6 4 9 0M3 16c3-4 6 4 9 0s6 4 9 0",
  pipelines: "M4 5h5v5H4zM15 14h5v5h-5zM9 7.500h4a3 3 0 0 1 3 3V14",
  schemas: "M8 4c-2.500 0-2.500 1.500-2.500 4S5 12 3.500 12c1.500 0 2 1.500 2 4s0 4 2.500 4M16 4c2.500 0 2.500 1.500 2.500 4s.5 4 2 4c-1.500 0-2 1.500-2 4s0 4-2.500 4",
  security: "M12 3l7 3v5c0 5-3 8.500-7 10-4-1.500-7-5-7-10V6zM9 12l2.200 2.200L15.200 10",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.500v5M9 14.500v5",
  filter: "M4 5h16l-6 8v5l-4 2v-7z",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  done: "M5 12.500l4.500 4.500L19 7",
  down: "M12 5v14M6 13l6 6 6-6",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 6h16M4 12h16M4 18h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  play: "M7 5l12 7-12 7z",
  pause: "M8 5v14M16 5v14",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4.900 4.900l1.400 1.400M17.700 17.700l1.400 1.400M2 12h2M20 12h2M4.900 19.100l1.400-1.400M17.700 6.300l1.400-1.400",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
  screen: "M3 5h18v11H3zM9 20h6M12 16v4",
  right: "M9 5l7 7-7 7",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  send: "M4 12l16-8-6 16-3-7z",
};

export type IconName = keyof typeof DRAWINGS;

export const Icon = ({ name, turned }: { name: IconName; turned?: boolean }) => (
  <svg
    viewBox="0 0 24 24"
    fill="none"
    stroke="currentColor"
    stroke-width="1.8"
    stroke-linecap="round"
    stroke-linejoin="round"
    aria-hidden="true"
    focusable="false"
    style={turned ? { transform: "rotate(90deg)" } : undefined}
  >
    <path d={DRAWINGS[name]} />
  </svg>
);

export const Logo = () => (
  <svg viewBox="0 0 32 32" aria-hidden="true" focusable="false">
    <rect width="32" height="32" rx="8" fill="#0a6c8f" />
    <path d="M8 8h7l9 16h-7z" fill="#fff" />
    <path d="M8 13v11h6.2z" fill="#8fd4ee" />
  </svg>
);
