// The perceptron [4,4,5,6,4,3,3], trained example by example, as one writes it down: loops over layers, rows and columns.
#include <string.h>

enum { LAYERS = 6, WIDTH = 6 };
static const int N[LAYERS + 1] = {4, 4, 5, 6, 4, 3, 3};

// x: count by 4; y: count by 3; w and out: 6 by 6 by 6, layer by row by column.
void train(long count, const double *x, const double *y, const double *w, double eta, double *out) {
  double weights[LAYERS][WIDTH][WIDTH] = {0};
  for (int k = 0; k < LAYERS; k++)
    for (int i = 0; i < N[k]; i++)
      for (int j = 0; j < N[k + 1]; j++) weights[k][i][j] = w[(k * WIDTH + i) * WIDTH + j];
  for (long d = 0; d < count; d++) {
    double r[LAYERS + 1][WIDTH] = {0}, delta[WIDTH] = {0}, down[WIDTH];
    for (int i = 0; i < N[0]; i++) r[0][i] = x[d * N[0] + i];
    for (int k = 0; k < LAYERS; k++)
      for (int j = 0; j < N[k + 1]; j++) {
        double s = 0;
        for (int i = 0; i < N[k]; i++) s += r[k][i] * weights[k][i][j];
        r[k + 1][j] = s > 0 ? s : 0;
      }
    for (int j = 0; j < N[LAYERS]; j++) delta[j] = r[LAYERS][j] - y[d * N[LAYERS] + j];
    for (int k = LAYERS - 1; k >= 0; k--) {
      for (int j = 0; j < N[k + 1]; j++) delta[j] = r[k + 1][j] > 0 ? delta[j] : 0;
      for (int i = 0; i < N[k]; i++) {
        down[i] = 0;
        for (int j = 0; j < N[k + 1]; j++) {
          down[i] += weights[k][i][j] * delta[j];
          weights[k][i][j] -= eta * r[k][i] * delta[j];
        }
      }
      memcpy(delta, down, sizeof down);
    }
  }
  memcpy(out, weights, sizeof weights);
}
