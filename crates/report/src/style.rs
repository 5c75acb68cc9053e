//! The style sheet: one set of names for colours, light and dark, and paper.
//!
//! Colours are Okabe and Ito's, which most colour-blind readers can distinguish, and never the only
//! difference: the model is dashed, the wire thin and grey, p99 fine, loss in bars. The same thing
//! has the same colour in every figure. Text in figures grows on narrow screens, where the figure
//! itself shrinks.

/// The whole style sheet, inlined into the page.
pub const SHEET: &str = r#"
:root{color-scheme:light dark;
--page:#fff;--ink:#1a1d23;--soft:#5b6270;--hair:#e4e7ed;--card:#f6f7f9;
--measured:#0072b2;--model:#d55e00;--wire:#6b7280;--loss:#b0417f;--good:#0b7a57;--warn:#8f5400;
--tone1:#6b7280;--tone2:#d55e00;--tone3:#0072b2;--tone4:#b0417f;--tone5:#b87a00;--tone6:#008a63;
--tone7:#2a8bc4;--tone8:#7d7400;--tone9:#1a1d23}
@media screen and (prefers-color-scheme:dark){:root{
--page:#14161a;--ink:#e7e9ee;--soft:#9ca3b0;--hair:#2a2e36;--card:#1b1e24;
--measured:#56b4e9;--model:#f0a35e;--wire:#9299a6;--loss:#e58fc0;--good:#5ec79b;--warn:#e3ad52;
--tone1:#9ca3b0;--tone2:#f28c3f;--tone3:#4f9fe0;--tone4:#e58fc0;--tone5:#eebb4d;--tone6:#35c296;
--tone7:#8fd0f5;--tone8:#f0e442;--tone9:#e7e9ee}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums}
main,header,footer{max-width:1160px;margin:0 auto;padding:0 28px}
header{padding-top:30px}
.crumb{color:var(--soft);font-size:13.5px;margin:0 0 10px}
.crumb b{color:var(--warn);font-weight:600}
h1{font-size:26px;line-height:1.38;font-weight:450;letter-spacing:-.012em;margin:0 0 18px;
max-width:44em}
h1 span{display:block;text-wrap:pretty}h1 span+span{margin-top:8px}
h1 b{color:var(--measured);font-weight:640}
.lede{color:var(--soft);margin:0 0 6px;max-width:70em}
.lede b{color:var(--ink);font-weight:500}
nav{display:flex;flex-wrap:wrap;gap:4px 22px;margin:18px 0 0;font-size:14px}
nav a{color:var(--soft);text-decoration:none;padding:3px 0;border-bottom:2px solid transparent}
nav a:hover,nav a:focus-visible{color:var(--ink);border-color:var(--measured)}
.warnings{list-style:none;margin:22px 0 0;padding:0}
.warnings li{border-left:4px solid var(--warn);background:var(--card);padding:10px 16px;
margin:0 0 8px;font-size:15px;max-width:76em}
.warnings b{color:var(--warn)}
section{border-top:1px solid var(--hair);margin-top:34px;padding-top:20px}
h2{font-size:20px;font-weight:620;letter-spacing:-.006em;margin:0}
h2+p{color:var(--soft);margin:2px 0 20px;max-width:70em}
.pair{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,410px),1fr));
grid-template-rows:auto 1fr;gap:10px 44px;align-items:start}
.pair>*{min-width:0;margin-bottom:26px}.pair>div,.pair>p{grid-row:span 2}
.pair>figure{display:grid;grid-row:span 2;grid-template-rows:subgrid}
figure{margin:0;position:relative;max-width:640px;break-inside:avoid}
figcaption{font-size:15px;line-height:1.45;margin:0;color:var(--soft);text-wrap:pretty}
div>figure>figcaption{margin-bottom:10px}div>figure{margin-bottom:14px}

figcaption b{color:var(--ink);font-weight:640}
svg{display:block;width:100%;height:auto;overflow:visible}
svg:focus-visible{outline:2px solid var(--measured);outline-offset:6px}
svg text{font-size:12px;fill:var(--soft)}
svg .title{font-size:12px}
svg .row{fill:var(--ink);font-size:12.5px}
svg .name{font-size:12.5px;font-weight:640;paint-order:stroke;stroke:var(--page);stroke-width:4px;
stroke-linejoin:round}
.grid{stroke:var(--hair);fill:none}
.axis{stroke:var(--soft);fill:none}
.line,.sample{fill:none;stroke:currentColor;stroke-width:1.9;stroke-linejoin:round;
stroke-linecap:round}
.sample{stroke-width:2.6}
.measured{color:var(--measured)}.model{color:var(--model)}.wire{color:var(--wire)}
.loss{color:var(--loss)}.planned{color:var(--wire)}
.tone1{color:var(--tone1)}.tone2{color:var(--tone2)}.tone3{color:var(--tone3)}
.tone4{color:var(--tone4)}.tone5{color:var(--tone5)}.tone6{color:var(--tone6)}
.tone7{color:var(--tone7)}.tone8{color:var(--tone8)}.tone9{color:var(--tone9)}
svg .name{fill:currentColor}
.line.model,.sample.model{stroke-dasharray:6 3.5;stroke-linecap:butt}
.line.dashed,.sample.dashed{stroke-dasharray:6 3.5;stroke-linecap:butt}
.line.wire{stroke-width:1.4}
.line.ghost{color:var(--wire);stroke-width:1;opacity:.32}
.line.guide{color:var(--soft);stroke-width:1;stroke-dasharray:2 3}
.name.guide{color:var(--soft);font-weight:500}
.dots.tone1,.dots.tone2,.dots.tone3,.dots.tone4,.dots.tone5,.dots.tone6,.dots.tone7,.dots.tone8,
.dots.tone9{stroke-width:4.6;opacity:1}
.line.fine,.sample.fine{stroke-width:1.1;opacity:.85}
.dots{fill:none;stroke:currentColor;stroke-width:3.6;stroke-linecap:round;opacity:.85}
.dot{fill:currentColor;stroke:var(--page);stroke-width:1.2}
.dot.hollow{fill:var(--page);stroke:currentColor;stroke-width:2}
.dot:hover,.bar:hover{filter:brightness(1.15)}
.bar{fill:currentColor;opacity:.82}
.bar.planned{opacity:.2}
.bar.hollow{fill:currentColor;fill-opacity:.1;stroke:currentColor;stroke-width:1.3;
stroke-dasharray:6 3.5;opacity:1}
.band{fill:currentColor;opacity:.2;stroke:none}
.band.full{opacity:.85}
.band.pile{opacity:.55}.block.pile{opacity:.55}
.block{fill:currentColor;opacity:.3}.block.loss{opacity:.82}
.block.hollow{fill-opacity:.15;stroke:currentColor;stroke-width:1.3;stroke-dasharray:4 2.5;opacity:1}
.scroll{overflow-x:auto;margin:0 0 20px}
.scroll:focus-visible{outline:2px solid var(--measured)}
table{border-collapse:collapse;font-size:14.5px;break-inside:avoid}
caption{text-align:left;font-weight:640;padding:0 0 4px;white-space:nowrap}
td,th{padding:5px 0 5px 18px;text-align:right;border-bottom:1px solid var(--hair);
white-space:nowrap}
td:first-child,th:first-child{text-align:left;padding-left:0}
thead th{color:var(--soft);font-weight:500}
tbody th{font-weight:400}
table.claims td.verdict{white-space:nowrap}
table.claims td,table.claims th{text-align:left;white-space:normal;vertical-align:top;
min-width:8em}
table.claims th[scope=row]{min-width:15em}
table.laws{font-size:13.5px}
table.laws td,table.laws th{padding-left:11px}
table.laws td:first-child,table.laws th:first-child{padding-left:0}
table.words td{text-align:left;white-space:normal;overflow-wrap:anywhere}
.good{color:var(--good);font-weight:600}.bad{color:var(--warn);font-weight:600}
.note{font-size:14px;color:var(--soft);margin:0 0 14px;max-width:66em}
details{border-top:1px solid var(--hair);padding:10px 0}
details[open]{padding-bottom:20px}
summary{cursor:pointer;font-weight:600;padding:2px 0}
details>:not(summary){margin-top:12px}
code,pre{font:13.5px/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{background:var(--card);padding:2px 7px;border-radius:4px;overflow-wrap:anywhere}
pre{background:var(--card);padding:14px 16px;overflow-x:auto;border-radius:6px;margin:0}
a{color:var(--measured)}
footer{overflow-wrap:anywhere;color:var(--soft);font-size:13.5px;padding-top:26px;padding-bottom:50px}
.read{position:absolute;left:0;bottom:-8px;background:var(--page);color:var(--ink);
font-size:13px;padding:1px 8px 1px 0;pointer-events:none}
.cursor{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 2;pointer-events:none}
@media(max-width:560px){
main,header,footer{padding:0 16px}header{padding-top:20px}
h1{font-size:21px}h2{font-size:18px}
svg text,svg .title,svg .row,svg .name{font-size:14.5px}
td,th{padding-left:14px}}
@media print{
body{font-size:11pt}main,header,footer{max-width:none;padding:0}
nav,.read,.cursor{display:none}
.pair{grid-template-columns:1fr 1fr;gap:18px 26px}
h2,h2+p{break-after:avoid}.pair{break-inside:avoid}
h1{font-size:17pt}figcaption,table,.note{font-size:9pt}.scroll{overflow:visible}
td,th{padding:3px 0 3px 12px}
details::details-content{content-visibility:visible;display:block;height:auto}
pre{white-space:pre-wrap}}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
"#;
