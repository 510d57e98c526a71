/** Run the page on uncertainty. */

import { chooseParts, chooseRisks, offerCsv, pairTables, sortTables, unpacked } from "./frame.js";

offerCsv((await unpacked("index")).csv);
chooseParts("select.estimator", ".uncertainty-part", "estimator");
sortTables();
pairTables();
chooseRisks();
document.documentElement.dataset.ready = "yes";
