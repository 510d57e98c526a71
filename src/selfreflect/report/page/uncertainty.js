/** Run the page on uncertainty. */

import { chooseParts, offerCsv, sortTables, unpacked } from "./frame.js";

offerCsv((await unpacked("index")).csv);
chooseParts("select.estimator", ".uncertainty-part", "estimator");
sortTables();
document.documentElement.dataset.ready = "yes";
