// The settings with the smallest changes to how the views were written by hand; 160 is as wide as two columns of a review.
export default {
  printWidth: 160,
  experimentalOperatorPosition: "start",
};
