"""How a program's arrays are split over devices: layouts, collectives, findings, promises."""
