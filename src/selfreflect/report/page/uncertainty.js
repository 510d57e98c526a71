/** Run the page on uncertainty. */

import { chooseParts, chooseRisks, offerCsv, sortTables, unpacked } from "./frame.js";

offerCsv((await unpacked("index")).csv);
chooseParts("select.estimator", ".uncertainty-part", "estimator");
sortTables();
chooseRisks();
document.documentElement.dataset.ready = "yes";
